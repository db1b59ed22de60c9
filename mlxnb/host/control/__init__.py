"""mlxnb's own routes, for notebooks: what its engine shows and does, from another process."""
