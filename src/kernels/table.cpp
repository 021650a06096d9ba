#include "kernels/table.h"

#include "kernels/vec.h"

extern "C" ingot::KernelStatus ingot_table(const ingot::KernelCall* call) {
  const auto& p = *reinterpret_cast<const ingot::TableParams*>(call->param);
  const auto* x = static_cast<const uint8_t*>(call->operand[0]);
  const auto* table = static_cast<const uint8_t*>(call->operand[1]);
  auto* y = static_cast<uint8_t*>(call->operand[2]);
  const int64_t end = call->end * ingot::kTableChunk < p.count ? call->end * ingot::kTableChunk : p.count;
  int64_t i = call->begin * ingot::kTableChunk;
  for (; i + 8 <= end; i += 8) {
    uint64_t from, to = 0;  // one load and one store for eight
    __builtin_memcpy(&from, x + i, 8);
    INGOT_UNROLL for (int b = 0; b < 64; b += 8) to |= uint64_t(table[from >> b & 0xff]) << b;
    __builtin_memcpy(y + i, &to, 8);
  }
  for (; i < end; i++) y[i] = table[x[i]];
  return ingot::kOk;
}
