// Channel shuffles, while the layout of a network is decided:
//   Reshape(Transpose(Reshape(x, [N, g, C/g, ...]), [0, 2, 1, ...]), [N, C, ...]) <-> ChannelShuffle(x) {groups: g}
// As one node it can work in either layout; in NHWC the transpose only swaps the last two axes.
#pragma once
#include "passes/editor.h"

namespace ingot {

void find_channel_shuffles(Editor&);
// Writes them out again, in the layout they have now (attribute channels_last).
void expand_channel_shuffles(Editor&);

}  // namespace ingot
