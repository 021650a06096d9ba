/* Runs a model.so on ones and prints its outputs. Nothing of Ingot is needed but the header:
 *   cc -I include examples/c/run_model.c -o run_model -ldl && ./run_model ./model.so 7 1x128 1x128
 * After the library: the element type of all inputs (see ingot.h: 1 is float, 7 is int64), and the shape of each. */
#include <dlfcn.h>
#include <ingot/ingot.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_TENSORS 16

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "usage: run_model model.so DTYPE SHAPE...\n"), 2;
  void* lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!lib) return fprintf(stderr, "%s\n", dlerror()), 1;
  ingot_create_fn create = (ingot_create_fn)dlsym(lib, "ingot_create");
  ingot_run_fn run = (ingot_run_fn)dlsym(lib, "ingot_run");
  ingot_signature_fn signature = (ingot_signature_fn)dlsym(lib, "ingot_signature");
  ingot_release_fn release = (ingot_release_fn)dlsym(lib, "ingot_release");
  ingot_destroy_fn destroy = (ingot_destroy_fn)dlsym(lib, "ingot_destroy");
  ingot_error_fn error = (ingot_error_fn)dlsym(lib, "ingot_error");

  ingot_model* model;
  if (create(0, &model) != INGOT_OK) return fprintf(stderr, "%s\n", error()), 1;
  printf("%s\n", signature(model));

  ingot_tensor in[MAX_TENSORS] = {{0}}, out[MAX_TENSORS] = {{0}};
  int inputs = argc - 3 < MAX_TENSORS ? argc - 3 : MAX_TENSORS;
  for (int i = 0; i < inputs; i++) {
    size_t count = 1;
    in[i].dtype = atoi(argv[2]);
    for (char* dim = argv[3 + i]; *dim && in[i].rank < INGOT_MAX_RANK; dim += *dim == 'x') {
      in[i].dims[in[i].rank] = strtoll(dim, &dim, 10);
      count *= (size_t)in[i].dims[in[i].rank++];
    }
    in[i].bytes = count * (in[i].dtype == INGOT_I64 ? 8 : 4);
    in[i].data = malloc(in[i].bytes);
    for (size_t k = 0; k < count; k++) {
      if (in[i].dtype == INGOT_I64) ((int64_t*)in[i].data)[k] = 1;
      if (in[i].dtype == INGOT_I32) ((int32_t*)in[i].data)[k] = 1;
      if (in[i].dtype == INGOT_F32) ((float*)in[i].data)[k] = 1.0F;
    }
  }
  /* The signature says how many outputs there are; here the caller knows that it is one. */
  if (run(model, in, (size_t)inputs, out, 1) != INGOT_OK) return fprintf(stderr, "%s\n", error()), 1;
  for (size_t k = 0; k < out[0].bytes / sizeof(float); k++) printf("%.9g\n", ((float*)out[0].data)[k]);

  release(&out[0]);
  for (int i = 0; i < inputs; i++) free(in[i].data);
  destroy(model);
  return dlclose(lib);
}
