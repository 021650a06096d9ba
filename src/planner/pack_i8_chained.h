// The programs of kI8Chained: which words of B are added in 16 bits before they are widened, so that no numbers of A
// can overflow there. In a 16-bit lane the positive weights that meet may sum to 128 at most, and the negative ones
// too: 255 * 128 < 2^15. (kernels/gemm_i8_words.h has the glossary: word, order, chain, program, block, chunk,
// twelfth.)
//
//   programs   one for each chunk of columns, block of K and group of 2 columns; those of a block are sorted by length
//   offsets    u16 for each word of each program: where the word of A lies in the block, in twelfths
//   weights    [word][2 columns][4] i8: of the same word, in the order of bytes that its offset names
//
// A program with 2 chains of three words and 1 of two, whose first_word is f:
//
//   word         f     f+1   f+2 | f+3   f+4   f+5 | f+6   f+7 |  next program
//   offsets      o     o     o   | o     o     o   | o     o   |
//   weights      8 B   8 B   8 B | 8 B   8 B   8 B | 8 B   8 B |
//                chain of three  | chain of three  | of two    |
#pragma once
#include "planner/pack_i8.h"

namespace ingot {

struct Chained {
  std::vector<kernel::I8Program> programs;
  std::vector<uint16_t> offsets;
  std::vector<int8_t> weights;
};
Chained make_chained(const I8Matrix&);

// Is it faster than kI8Pairs would be?
bool worth_chaining(const I8Matrix&, const Chained&);

}  // namespace ingot
