/* The C interface of a compiled model: every model.so made by Ingot exports these functions.
 *
 * A model.so needs nothing but libc, libm and pthreads. Several of them can live in one process. All functions are
 * safe to call from many threads, also on the same model. Functions that can fail return an ingot_status; the text
 * of the last error of the calling thread is ingot_error().
 *
 *   void* lib = dlopen("./model.so", RTLD_NOW | RTLD_LOCAL);
 *   ingot_create_fn create = (ingot_create_fn)dlsym(lib, "ingot_create");
 */
#ifndef INGOT_H
#define INGOT_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define INGOT_API_VERSION 3
#define INGOT_MAX_RANK 8

typedef enum {
  INGOT_OK = 0,
  INGOT_INVALID_MODEL = 1,
  INGOT_UNSUPPORTED = 2,
  INGOT_INVALID_INPUT = 3,
  INGOT_IO = 4,
  INGOT_INTERNAL = 5,
  INGOT_RESOURCE = 6,
  INGOT_CANCELLED = 7,
  INGOT_DEADLINE = 8
} ingot_status;

/* Element types: the numbers of ONNX's TensorProto.DataType. */
typedef enum {
  INGOT_F32 = 1,
  INGOT_U8 = 2,
  INGOT_I8 = 3,
  INGOT_U16 = 4,
  INGOT_I16 = 5,
  INGOT_I32 = 6,
  INGOT_I64 = 7,
  INGOT_STRING = 8,
  INGOT_BOOL = 9,
  INGOT_F16 = 10,
  INGOT_F64 = 11,
  INGOT_U32 = 12,
  INGOT_U64 = 13,
  INGOT_BF16 = 16
} ingot_dtype;

typedef enum { INGOT_TENSOR = 0, INGOT_SEQUENCE = 1, INGOT_NONE = 2 } ingot_kind;

/* A dense row-major tensor; for models that have such inputs or outputs also a sequence of tensors, or nothing.
 *   strings: data is an array of const char*, each ending with a zero;
 *   a sequence: data is an array of dims[0] ingot_tensor, rank is 1;
 *   INGOT_NONE: an optional without a value; all other fields are ignored. */
typedef struct {
  void* data;
  size_t bytes; /* of the memory at data */
  int32_t kind; /* an ingot_kind */
  int32_t dtype;
  int32_t rank;
  int64_t dims[INGOT_MAX_RANK];
} ingot_tensor;

typedef struct ingot_model ingot_model;
typedef struct ingot_state ingot_state;

/* The INGOT_API_VERSION the library was made with. */
int ingot_api_version(void);
/* threads: 0 for the default. */
ingot_status ingot_create(int threads, ingot_model** model);
void ingot_destroy(ingot_model* model);
/* {"inputs": [{"name", "dtype", "shape"}], "outputs": [...]}; dims that are not fixed are strings; what is not a tensor
 * has a "form": sequence, optional or optional_sequence. Owned by the model. */
const char* ingot_signature(const ingot_model* model);
/* Inputs and outputs in the order of the signature. An output whose data is NULL gets memory from the library, to be
 * returned with ingot_release; otherwise bytes must be enough (strings and sequences are always given memory). dtype,
 * rank, dims and bytes of outputs are filled in. */
ingot_status ingot_run(ingot_model* model, const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs,
                       size_t output_count);
void ingot_release(ingot_tensor* output);

/* Limits of a model and of a run. All zero is no limit; `size` is sizeof the struct, so that a library tells the fields
 * that a program knows. */
typedef struct {
  size_t size;
  int32_t threads;       /* as for ingot_create */
  int32_t plans;         /* sets of shapes whose plans are kept; 0: 16 */
  uint64_t memory_bytes; /* what the tensors of a run may take; 0: what the machine has */
} ingot_create_options;
ingot_status ingot_create_with(const ingot_create_options* options, ingot_model** model);

typedef struct {
  size_t size;
  double timeout; /* seconds, from the call on; 0: none. Then INGOT_DEADLINE */
  /* NULL, or a word that any thread (or a signal handler) sets to anything but 0, atomically: then INGOT_CANCELLED. It
   * must live until the run returns; several runs may share it. */
  const int32_t* cancel;
  /* NULL, or a function that the calling thread calls about ten times a second: anything but 0 is INGOT_CANCELLED. */
  int (*poll)(void* poll_data);
  void* poll_data;
} ingot_run_options;
/* ingot_run within limits. A run looks at them between its steps, between pieces of long steps and in every turn of a
 * loop. When it ends early, outputs hold nothing of use (memory that the library gave is taken back), and the model is
 * as usable as before. */
ingot_status ingot_run_with(ingot_model* model, const ingot_run_options* options, const ingot_tensor* inputs,
                            size_t input_count, ingot_tensor* outputs, size_t output_count);

/* A state: outputs of the model that become inputs of its next run and stay inside meanwhile, as keys and values of a
 * decoder do. inputs[i] and outputs[i] name a pair; a count of 0 leaves it to the library to find them. A model has any
 * number of states, each used by one thread at a time (others wait); all are destroyed before the model. */
ingot_status ingot_state_create(ingot_model* model, const char* const* inputs, const char* const* outputs, size_t count,
                                ingot_state** state);
void ingot_state_destroy(ingot_state* state);
/* {"inputs": [...], "outputs": [...], "state": [[input, output], ...]}: the first two as in ingot_signature, without
 * what is in the state; then the names of its pairs. Owned by the state. */
const char* ingot_state_signature(const ingot_state* state);
/* As ingot_run, with the inputs and outputs of the state's signature. */
ingot_status ingot_state_run(ingot_state* state, const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs,
                             size_t output_count);
/* The same within limits. A state that grows is then as it was before the run. One that a run changes in place is lost
 * if it had begun to: runs fail with INGOT_INVALID_INPUT until the state is reset or its tensors are set. */
ingot_status ingot_state_run_with(ingot_state* state, const ingot_run_options* options, const ingot_tensor* inputs,
                                  size_t input_count, ingot_tensor* outputs, size_t output_count);
/* As it was at first: of length 0 where it grows, zeros elsewhere. */
ingot_status ingot_state_reset(ingot_state* state);
/* Of what grows; -1 if nothing does. */
int64_t ingot_state_length(ingot_state* state);
/* The tensor of a pair, by its place in the signature: as an output of ingot_run; and a copy of a tensor for it. */
ingot_status ingot_state_get(ingot_state* state, size_t pair, ingot_tensor* value);
ingot_status ingot_state_set(ingot_state* state, size_t pair, const ingot_tensor* value);

/* The last error of this thread, with a hint; "" if there was none. */
const char* ingot_error(void);

/* Declares the functions of a library that was made with a prefix (ingot compile --prefix p): p_create and the others.
 * A program that is linked with several models needs it: of the names above it would get those of one of them. */
#define INGOT_DECLARE_MODEL(prefix)                                                                                    \
  int prefix##_api_version(void);                                                                                      \
  ingot_status prefix##_create(int threads, ingot_model** model);                                                      \
  void prefix##_destroy(ingot_model* model);                                                                           \
  const char* prefix##_signature(const ingot_model* model);                                                            \
  ingot_status prefix##_run(ingot_model* model, const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs, \
                            size_t output_count);                                                                      \
  void prefix##_release(ingot_tensor* output);                                                                         \
  ingot_status prefix##_create_with(const ingot_create_options* options, ingot_model** model);                         \
  ingot_status prefix##_run_with(ingot_model* model, const ingot_run_options* options, const ingot_tensor* inputs,     \
                                 size_t input_count, ingot_tensor* outputs, size_t output_count);                      \
  ingot_status prefix##_state_run_with(ingot_state* state, const ingot_run_options* options,                           \
                                       const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs,          \
                                       size_t output_count);                                                           \
  ingot_status prefix##_state_create(ingot_model* model, const char* const* inputs, const char* const* outputs,        \
                                     size_t count, ingot_state** state);                                               \
  void prefix##_state_destroy(ingot_state* state);                                                                     \
  const char* prefix##_state_signature(const ingot_state* state);                                                      \
  ingot_status prefix##_state_run(ingot_state* state, const ingot_tensor* inputs, size_t input_count,                  \
                                  ingot_tensor* outputs, size_t output_count);                                         \
  ingot_status prefix##_state_reset(ingot_state* state);                                                               \
  int64_t prefix##_state_length(ingot_state* state);                                                                   \
  ingot_status prefix##_state_get(ingot_state* state, size_t pair, ingot_tensor* value);                               \
  ingot_status prefix##_state_set(ingot_state* state, size_t pair, const ingot_tensor* value);                         \
  const char* prefix##_error(void)

typedef int (*ingot_api_version_fn)(void);
typedef ingot_status (*ingot_create_fn)(int, ingot_model**);
typedef void (*ingot_destroy_fn)(ingot_model*);
typedef const char* (*ingot_signature_fn)(const ingot_model*);
typedef ingot_status (*ingot_run_fn)(ingot_model*, const ingot_tensor*, size_t, ingot_tensor*, size_t);
typedef void (*ingot_release_fn)(ingot_tensor*);
typedef ingot_status (*ingot_create_with_fn)(const ingot_create_options*, ingot_model**);
typedef ingot_status (*ingot_run_with_fn)(ingot_model*, const ingot_run_options*, const ingot_tensor*, size_t,
                                          ingot_tensor*, size_t);
typedef ingot_status (*ingot_state_run_with_fn)(ingot_state*, const ingot_run_options*, const ingot_tensor*, size_t,
                                                ingot_tensor*, size_t);
typedef ingot_status (*ingot_state_create_fn)(ingot_model*, const char* const*, const char* const*, size_t,
                                              ingot_state**);
typedef void (*ingot_state_destroy_fn)(ingot_state*);
typedef const char* (*ingot_state_signature_fn)(const ingot_state*);
typedef ingot_status (*ingot_state_run_fn)(ingot_state*, const ingot_tensor*, size_t, ingot_tensor*, size_t);
typedef ingot_status (*ingot_state_reset_fn)(ingot_state*);
typedef int64_t (*ingot_state_length_fn)(ingot_state*);
typedef ingot_status (*ingot_state_get_fn)(ingot_state*, size_t, ingot_tensor*);
typedef ingot_status (*ingot_state_set_fn)(ingot_state*, size_t, const ingot_tensor*);
typedef const char* (*ingot_error_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
