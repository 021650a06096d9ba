// Makes one call of the system fail: a library for LD_PRELOAD. The program under test arms it:
//
//   faults_arm("write", 3, 0, 0)    the third write from now on fails; (.., 1, 0): and all after it
//   faults_disarm()                 how many there were
//
// Only calls from code that is not Python's own count, unless `python` is set: what is tested is Ingot. A call is
// Python's own when its caller lies in the interpreter or in an extension module other than Ingot's, or in the shared
// C++ library when that allocates for one of these. Those of the dynamic loader do not count either.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum Kind { kMalloc, kMmap, kOpen, kRead, kWrite, kFsync, kRename, kThread, kLoad, kKinds };
static const char* const kNames[kKinds] = {"malloc", "mmap",   "open",           "read",  "write",
                                           "fsync",  "rename", "pthread_create", "dlopen"};

static atomic_int armed = -1;  // a Kind
static atomic_long seen, fails_at;
static int always, with_python;

// Where Python's own code lies.
#define MAX_RANGES 512
static struct {
  uintptr_t begin, end;
} python_ranges[MAX_RANGES];
static int range_count;

static int is_python(const char* name) {
  if (name[0] == 0) return 1;  // the program itself
  if (strstr(name, "ingot")) return 0;
  if (strstr(name, "ld-linux")) return 1;  // without memory for a thread's variables it ends the process itself
  return strstr(name, "python") != NULL || strstr(name, "site-packages") != NULL;
}

static int add_ranges(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  if (!is_python(info->dlpi_name)) return 0;
  for (int i = 0; i < info->dlpi_phnum && range_count < MAX_RANGES; i++) {
    const ElfW(Phdr)* h = &info->dlpi_phdr[i];
    if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
    python_ranges[range_count].begin = info->dlpi_addr + h->p_vaddr;
    python_ranges[range_count++].end = info->dlpi_addr + h->p_vaddr + h->p_memsz;
  }
  return 0;
}

static int from_python(void* caller) {
  const uintptr_t at = (uintptr_t)caller;
  for (int i = 0; i < range_count; i++)
    if (at >= python_ranges[i].begin && at < python_ranges[i].end) return 1;
  return 0;
}

static int fails(enum Kind kind, void* caller) {
  if (atomic_load_explicit(&armed, memory_order_relaxed) != (int)kind) return 0;
  if (!with_python && from_python(caller)) return 0;
  const long n = atomic_fetch_add(&seen, 1) + 1, at = atomic_load(&fails_at);
  return at > 0 && (n == at || (always && n > at));
}
#define FAILS(kind) fails(kind, __builtin_return_address(0))

int faults_arm(const char* name, long at, int all_after, int python) {
  for (int k = 0; k < kKinds; k++)
    if (strcmp(name, kNames[k]) == 0) {
      range_count = 0;
      dl_iterate_phdr(add_ranges, NULL);
      atomic_store(&seen, 0);
      atomic_store(&fails_at, at);
      always = all_after;
      with_python = python;
      atomic_store(&armed, k);
      return 0;
    }
  return -1;
}

long faults_disarm(void) {
  atomic_store(&armed, -1);
  return atomic_load(&seen);
}

// The call behind a name, looked up once.
#define REAL(type, name) \
  static type real;      \
  if (!real) real = (type)dlsym(RTLD_NEXT, name)

// --- memory. glibc has these under second names too: dlsym, which allocates itself, is not needed.

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static void* no_memory(void) {
  errno = ENOMEM;
  return NULL;
}

// The caller of an operator new, while the C++ library allocates for it.
static __thread void* behalf;

void* malloc(size_t n) {
  void* caller = behalf ? behalf : __builtin_return_address(0);
  behalf = NULL;
  return fails(kMalloc, caller) ? no_memory() : __libc_malloc(n);
}
void* calloc(size_t n, size_t size) { return FAILS(kMalloc) ? no_memory() : __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return FAILS(kMalloc) ? no_memory() : __libc_realloc(p, n); }
void* aligned_alloc(size_t align, size_t n) {
  void* caller = behalf ? behalf : __builtin_return_address(0);
  behalf = NULL;
  return fails(kMalloc, caller) ? no_memory() : __libc_memalign(align, n);
}
void* memalign(size_t align, size_t n) { return FAILS(kMalloc) ? no_memory() : __libc_memalign(align, n); }
int posix_memalign(void** out, size_t align, size_t n) {
  if (FAILS(kMalloc)) return ENOMEM;
  *out = __libc_memalign(align, n);
  return *out ? 0 : ENOMEM;
}

// The eight forms of operator new: an alignment, std::nothrow, both or neither follow the size, in registers.
typedef void* (*NewFn)(size_t, void*, void*);
static NewFn real_new(const char* name) {
  typedef void* (*Fn)(const char*, int);
  REAL(Fn, "dlopen");
  return (NewFn)dlsym(real("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
}
#define NEW(name)                                    \
  void* name(size_t n, void* more, void* and_more) { \
    static NewFn real;                               \
    if (!real) real = real_new(#name);               \
    behalf = __builtin_return_address(0);            \
    return real(n, more, and_more);                  \
  }
NEW(_Znwm)
NEW(_Znam)
NEW(_ZnwmRKSt9nothrow_t)
NEW(_ZnamRKSt9nothrow_t)
NEW(_ZnwmSt11align_val_t)
NEW(_ZnamSt11align_val_t)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t)
NEW(_ZnamSt11align_val_tRKSt9nothrow_t)

typedef void* (*MmapFn)(void*, size_t, int, int, int, off_t);
void* mmap(void* at, size_t n, int prot, int flags, int fd, off_t offset) {
  REAL(MmapFn, "mmap");
  if (FAILS(kMmap)) return errno = ENOMEM, MAP_FAILED;
  return real(at, n, prot, flags, fd, offset);
}
void* mmap64(void* at, size_t n, int prot, int flags, int fd, off_t offset) {
  REAL(MmapFn, "mmap64");
  if (FAILS(kMmap)) return errno = ENOMEM, MAP_FAILED;
  return real(at, n, prot, flags, fd, offset);
}

// --- files

static int mode_of(int flags, va_list more) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0; }

#define OPEN(name)                               \
  int name(const char* path, int flags, ...) {   \
    typedef int (*Fn)(const char*, int, ...);    \
    REAL(Fn, #name);                             \
    va_list more;                                \
    va_start(more, flags);                       \
    const int mode = mode_of(flags, more);       \
    va_end(more);                                \
    if (FAILS(kOpen)) return errno = EMFILE, -1; \
    return real(path, flags, mode);              \
  }
#define OPENAT(name)                                    \
  int name(int dir, const char* path, int flags, ...) { \
    typedef int (*Fn)(int, const char*, int, ...);      \
    REAL(Fn, #name);                                    \
    va_list more;                                       \
    va_start(more, flags);                              \
    const int mode = mode_of(flags, more);              \
    va_end(more);                                       \
    if (FAILS(kOpen)) return errno = EMFILE, -1;        \
    return real(dir, path, flags, mode);                \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                \
  FILE* name(const char* path, const char* mode) { \
    typedef FILE* (*Fn)(const char*, const char*); \
    REAL(Fn, #name);                               \
    if (FAILS(kOpen)) return errno = EMFILE, NULL; \
    return real(path, mode);                       \
  }
FOPEN(fopen)
FOPEN(fopen64)

#define TRANSFER(name, type, kind, error)      \
  ssize_t name(int fd, type data, size_t n) {  \
    typedef ssize_t (*Fn)(int, type, size_t);  \
    REAL(Fn, #name);                           \
    if (FAILS(kind)) return errno = error, -1; \
    return real(fd, data, n);                  \
  }
#define TRANSFER_AT(name, type, kind, error)            \
  ssize_t name(int fd, type data, size_t n, off_t at) { \
    typedef ssize_t (*Fn)(int, type, size_t, off_t);    \
    REAL(Fn, #name);                                    \
    if (FAILS(kind)) return errno = error, -1;          \
    return real(fd, data, n, at);                       \
  }
TRANSFER(read, void*, kRead, EIO)
// No disk is behind a pipe, and none can be full: only writes to files fail.
ssize_t write(int fd, const void* data, size_t n) {
  typedef ssize_t (*Fn)(int, const void*, size_t);
  REAL(Fn, "write");
  struct stat of;
  const int is_pipe = fstat(fd, &of) == 0 && S_ISFIFO(of.st_mode);
  if (!is_pipe && FAILS(kWrite)) return errno = ENOSPC, -1;
  return real(fd, data, n);
}
TRANSFER_AT(pread, void*, kRead, EIO)
TRANSFER_AT(pread64, void*, kRead, EIO)
TRANSFER_AT(pwrite, const void*, kWrite, ENOSPC)
TRANSFER_AT(pwrite64, const void*, kWrite, ENOSPC)

int fsync(int fd) {
  typedef int (*Fn)(int);
  REAL(Fn, "fsync");
  return FAILS(kFsync) ? (errno = EIO, -1) : real(fd);
}
int fdatasync(int fd) {
  typedef int (*Fn)(int);
  REAL(Fn, "fdatasync");
  return FAILS(kFsync) ? (errno = EIO, -1) : real(fd);
}
int rename(const char* from, const char* to) {
  typedef int (*Fn)(const char*, const char*);
  REAL(Fn, "rename");
  return FAILS(kRename) ? (errno = EACCES, -1) : real(from, to);
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) {
  typedef int (*Fn)(int, const char*, int, const char*);
  REAL(Fn, "renameat");
  return FAILS(kRename) ? (errno = EACCES, -1) : real(from_dir, from, to_dir, to);
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  typedef int (*Fn)(int, const char*, int, const char*, unsigned);
  REAL(Fn, "renameat2");
  return FAILS(kRename) ? (errno = EACCES, -1) : real(from_dir, from, to_dir, to, flags);
}

// --- threads and libraries

int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*), void* data) {
  typedef int (*Fn)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  REAL(Fn, "pthread_create");
  return FAILS(kThread) ? EAGAIN : real(thread, attr, run, data);
}
void* dlopen(const char* path, int flags) {
  typedef void* (*Fn)(const char*, int);
  REAL(Fn, "dlopen");
  // What is not there sets dlerror as a failure does.
  return real(FAILS(kLoad) ? "/nowhere/faults.so" : path, flags);
}
