// A model named on the command line, whatever it is: an .onnx file, an IR folder or a model.so.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/npy.h"
#include "compiler/compiler.h"
#include "compiler/library.h"

namespace ingot {

// The options of compiling, shared by every command that compiles.
struct ModelOptions {
  std::string path;
  int opt_level = 3;
  std::string march = "native";
  std::vector<std::string> patterns;  // name=on|off
  std::vector<std::string> shapes;    // input:1x128
  std::string autocast;               // a precision of passes/autocast.h; "": as it is
  bool independent_dims = false;
  std::vector<std::string> limits;  // name=number

  void add_to(Command&);
  CompileOptions compile_options() const;
  std::map<std::string, std::vector<int64_t>> parsed_shapes() const;
};

class Model {
 public:
  // `fix_shapes`: the shapes given become part of what is compiled, not only of the data.
  Model(const ModelOptions&, bool fix_shapes);

  bool is_library() const { return !graph_; }
  const std::shared_ptr<Graph>& graph() const { return graph_; }  // null for a library
  // What the graph held before the fusions; the same as graph() for IR.
  const std::vector<std::string>& original_ops() const { return report_.operators; }
  const FusionReport& report() const { return report_; }
  const CompileOptions& compile_options() const { return options_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }

  // Makes it ready to run. wait: runs wait for their machine code, which is otherwise made in the background.
  void start(int threads, bool wait = false);
  // timeout: seconds; 0: any time.
  NamedArrays run(std::vector<Array>& inputs, double timeout = 0);
  // For measuring: outputs go to memory that is kept from run to run.
  void run_again(std::vector<Array>& inputs, NamedArrays& outputs);
  int64_t arena_bytes() const { return session_ ? session_->arena_bytes() : 0; }
  int threads() const { return threads_; }

 private:
  std::string path_;
  CompileOptions options_;
  std::shared_ptr<Graph> graph_;
  GraphMaker again_;
  FusionReport report_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<LibraryModel> library_;
  std::vector<Port> inputs_, outputs_;
  int threads_ = 0;
};

// "input_ids: i64[batch, 128]"
std::string describe(const Port&);

// Where the data for the inputs comes from: files, or a seeded random generator.
struct InputOptions {
  std::vector<std::string> files;  // data.npy, name=data.npy, data.npz
  bool random = false;
  uint64_t seed = 0;

  void add_to(Command&);
  // One array per input, in order. Symbolic dims of random inputs are taken from `shapes`, otherwise 1.
  std::vector<Array> read(const std::vector<Port>& ports,
                          const std::map<std::string, std::vector<int64_t>>& shapes) const;
};

}  // namespace ingot
