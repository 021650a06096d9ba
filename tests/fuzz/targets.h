// The programs of this folder: each takes any bytes. An Error is a fine answer; a crash, a hang, or another exception
// is not. entry.cpp makes a program of libFuzzer of each, corpus.cpp one that goes through the files of corpus/.
#pragma once
#include <cstdint>
#include <span>

namespace ingot::fuzz {

using Bytes = std::span<const uint8_t>;

void onnx(Bytes);     // model.onnx: loaded, optimised and run
void ir(Bytes);       // graph.yaml, a zero byte, weights.bin: read, optimised and run
void convert(Bytes);  // two bytes that say how, and model.onnx: converted or quantized, and what was written read again
void npy(Bytes);      // .npy and .npz: read, and what is written of it read again
void library(Bytes);  // model.so: what is looked at before any of its code may run
void c_api(Bytes);    // calls of the C interface
void options(Bytes);  // options of the command line and of the environment, a word in each line
void cache(Bytes);    // an entry of the disk cache

}  // namespace ingot::fuzz
