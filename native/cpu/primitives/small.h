#pragma once

#include <optional>
#include <variant>

#include "base.h"

namespace mlxnb {

/// x / sqrt(mean(x²) + eps) * weight over the last axis, in x's type.
mx::array rms_norm(const mx::array& x, const std::optional<mx::array>& weight, float eps);

/// x - log Σ e^x over the last axis, in x's type.
mx::array log_softmax(const mx::array& x);

/// Rotary positions for x (batch, heads, length, dim): `rotated` of dim elements turn by
/// (offset + position) * scale * frequencies. Frequencies are float32 (rotated / 2); the offset is
/// a number, or an array of one element or of one for each row of the batch.
mx::array rope(const mx::array& x, const mx::array& frequencies,
               const std::variant<int, mx::array>& offset, bool adjacent, float scale);

/// silu(gate) * up, for arrays of one shape and type.
mx::array gated(const mx::array& gate, const mx::array& up);

}  // namespace mlxnb
