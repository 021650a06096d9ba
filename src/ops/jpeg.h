// JPEG (ITU-T T.81): sequential and progressive, 8 bits, Huffman coded; grey, YCbCr or RGB.
//
// The standard leaves the arithmetic open. This is that of libjpeg in its default setting, bit for bit: inverse DCT
// with 13-bit constants, colour differences interpolated linearly, conversion with 16-bit constants. Decoders built on
// it (Pillow, OpenCV, ...) give the same pixels.
#pragma once
#include "ops/image.h"

namespace ingot {

Image read_jpeg(ImageReader);

}  // namespace ingot
