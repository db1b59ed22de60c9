"""How doors, hosts and notebook servers find and trust each other."""
