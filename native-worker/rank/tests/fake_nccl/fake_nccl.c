// A small libnccl (and the few functions of libcudart beside it) on host memory, for tests without a GPU.
//
// Ranks of a communicator share a file in memory with a mailbox for each ordered pair. A message is sent when it was taken:
// both ends meet. Streams are threads that run what was enqueued in order, so that calls return before their work is done, as
// on a GPU; with $FAKE_NCCL_DELAYS=N each piece of work begins up to N microseconds late. Communicators connect behind the call
// that makes them. Every call is written to $FAKE_NCCL_LOG.PID, one line each. With $FAKE_NCCL_FAIL_AFTER=N, the communicators
// of this process report a remote error after N operations and do no more; with $FAKE_NCCL_NEVER_CONNECT=1 they stay in
// progress. With $FAKE_NCCL_POLLS=N each collective is in progress the first N times that it is asked about. With
// $FAKE_GPU_FORGETS=default or side, that stream, or the others, don't wait for events: what a program does that forgot to; with
// "default N" or "side N" behind the first N times;
// with $FAKE_GPU_FORGETS="device NAME" threads of this name stay on the first GPU. $FAKE_GPU_DRIVER, _MODE, _GIB, _FREE,
// _MULTIPROCESSORS and $FAKE_NCCL_VERSION are what a GPU, its driver and NCCL say of themselves. With $FAKE_NCCL_SLOW=N
// collectives and messages take N milliseconds longer. With $FAKE_NCCL_HANGS=abort, revoke or exit, that of the first part of
// all ranks, or the end of the process, never returns. With $FAKE_GPU_LOST_AFTER=N the GPU is lost after N operations. With
// $FAKE_NCCL_WRONG=all_gather that fills nothing. With $FAKE_GPU_CLOCK=N events tell N times as long as it was.
//
// Each thread is on a GPU, as CUDA has it: the first until it takes another. Streams, events and communicators belong to the GPU that the
// thread was on which made them, and a thread that is on another one when it works with them ends the process, which names both.
//
// Linked with fake_gpu.cpp it is the GPU's streams, too, and says there what its work reads and writes.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7, NOT_READY = 600 };
enum { INT64 = 4, HALF = 6, FLOAT = 7, DOUBLE = 8, BFLOAT16 = 9 };
#define BOX_BYTES (64 * 1024)
#define MAX_RANKS 16
#define GPUS 8
#define ID_BYTES 128

typedef struct { char internal[ID_BYTES]; } ncclUniqueId;

typedef struct {
  _Atomic uint32_t full;  // bytes in it, plus one; 0 when empty
  char bytes[BOX_BYTES];
} Box;

typedef struct {
  _Atomic int joined;
  Box boxes[MAX_RANKS][MAX_RANKS];  // [from][to]
} Shared;

typedef struct Comm {
  Shared* shared;
  int rank, size, number, device;
  _Atomic int aborted, state;
  _Atomic long polls;  // for which it is still in progress
  int splits;  // so far, the same on all its ranks
  char name[ID_BYTES];
} Comm;

static _Atomic int communicators, operations, given_to_gpu;

typedef struct { const char* begin; size_t bytes; int writes; } Range;
// Of fake_gpu.cpp, where that is there.
__attribute__((weak)) void gpu_work(int stream, int device, const char* what, const Range* ranges, int count);
__attribute__((weak)) void gpu_recorded(void* event, int stream);
__attribute__((weak)) void gpu_waits(int stream, void* event);
__attribute__((weak)) void gpu_seen(void* event);

void fake_say(const char* format, ...) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  const char* path = getenv("FAKE_NCCL_LOG");
  if (!path) return;
  pthread_mutex_lock(&lock);
  static FILE* file;
  if (!file) {
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, getpid());
    file = fopen(name, "a");
  }
  if (file) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fflush(file);
  }
  pthread_mutex_unlock(&lock);
}

static size_t width(int type) {
  switch (type) {
    case INT64: case DOUBLE: return 8;
    case FLOAT: return 4;
    case HALF: case BFLOAT16: return 2;
    default: return 1;
  }
}

// ---- GPUs ----

static _Thread_local int current;

// The GPU that this thread is on.
int* fake_device(void) { return &current; }

// CUDA refuses some of what this ends, as an invalid handle. The rest is worse: it works on the wrong GPU, or makes a context there, which
// takes half a GiB of it (a thread that asks about an event, or aborts a communicator).
static void belongs(const char* call, const char* what, int device) {
  if (device == current) return;
  fprintf(stderr, "fake GPU: %s in a thread that is on GPU %d, with %s of GPU %d\n", call, current, what, device);
  _exit(70);
}

// ---- moving bytes ----

typedef struct {
  int sends, peer;
  char* bytes;
  size_t left;
  int done, given;  // given: its last piece lies in the box and waits to be taken
} Transfer;

// Runs all transfers side by side. Each moves at least one (possibly empty) piece; one that sends is done when all was
// taken.
static void exchange(Comm* comm, Transfer* transfers, int count) {
  int open = count;
  while (open > 0 && !comm->aborted) {
    int moved = 0;
    for (int i = 0; i < count; ++i) {
      Transfer* t = &transfers[i];
      if (t->done) continue;
      Box* box = t->sends ? &comm->shared->boxes[comm->rank][t->peer] : &comm->shared->boxes[t->peer][comm->rank];
      uint32_t full = box->full;
      if ((full == 0) != t->sends) continue;
      if (t->given) { t->done = 1; --open; moved = 1; continue; }
      // Of several transfers with one peer, the earlier goes first.
      int earlier = 0;
      for (int j = 0; j < i; ++j) earlier |= !transfers[j].done && transfers[j].peer == t->peer && transfers[j].sends == t->sends;
      if (earlier) continue;
      size_t piece = t->sends ? (t->left < BOX_BYTES ? t->left : BOX_BYTES) : full - 1;
      if (piece > t->left) piece = t->left;
      if (t->sends) memcpy(box->bytes, t->bytes, piece); else memcpy(t->bytes, box->bytes, piece);
      t->bytes += piece;
      t->left -= piece;
      box->full = t->sends ? (uint32_t)piece + 1 : 0;
      moved = 1;
      if (t->left == 0 && t->sends) t->given = 1;
      if (t->left == 0 && !t->sends) { t->done = 1; --open; }
    }
    if (!moved) usleep(20);
  }
}

static float wide(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

static uint16_t narrow(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (value != value) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Sums (or takes the largest of) the ranks' parts in rank order; 16-bit types in single precision, rounded once.
static void reduce(char** parts, int ranks, char* out, size_t count, int type, int largest) {
  for (size_t i = 0; i < count; ++i) {
    double d = 0;
    float f = 0;
    int64_t n = 0;
    for (int r = 0; r < ranks; ++r) {
#define MERGE(into, value) into = r == 0 ? (value) : largest ? ((value) > into ? (value) : into) : into + (value)
      if (type == DOUBLE) MERGE(d, ((double*)parts[r])[i]);
      else if (type == FLOAT) MERGE(f, ((float*)parts[r])[i]);
      else if (type == BFLOAT16) MERGE(f, wide(((uint16_t*)parts[r])[i]));
      else if (type == HALF) MERGE(f, (float)((_Float16*)parts[r])[i]);
      else MERGE(n, ((int64_t*)parts[r])[i]);
    }
    if (type == DOUBLE) ((double*)out)[i] = d;
    else if (type == FLOAT) ((float*)out)[i] = f;
    else if (type == BFLOAT16) ((uint16_t*)out)[i] = narrow(f);
    else if (type == HALF) ((_Float16*)out)[i] = (_Float16)f;
    else ((int64_t*)out)[i] = n;
  }
}

// ---- streams and events ----

typedef struct Event {
  int device;
  _Atomic long recorded, reached;
  struct timespec at;
} Event;

typedef enum { RECORD, WAIT, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, REDUCE, BROADCAST, TRANSFERS } Kind;

typedef struct Work {
  Kind kind;
  struct Work* next;
  Event* event;
  long generation;
  Comm* comm;
  const char* input;
  char* output;
  size_t count;
  int type, argument;
  Transfer* transfers;
  int transfer_count;
} Work;

typedef struct Stream {
  int number;  // for the default one of a GPU the GPU's
  int device;
  _Atomic long given, done;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Work *first, *last;
} Stream;

static void run(Work* w) {
  Comm* comm = w->comm;
  static _Thread_local unsigned seed;
  const char* delays = getenv("FAKE_NCCL_DELAYS");
  if (!seed) seed = (unsigned)(uintptr_t)&seed ^ (unsigned)getpid();
  if (delays) usleep((unsigned)rand_r(&seed) % (unsigned)(atoi(delays) + 1));
  if (w->kind == RECORD) {
    clock_gettime(CLOCK_MONOTONIC, &w->event->at);
    w->event->reached = w->generation;
    return;
  }
  if (w->kind == WAIT) {
    while (w->event->reached < w->generation) usleep(20);
    return;
  }
  if (getenv("FAKE_GPU_LOST_AFTER")) ++given_to_gpu;
  const char* limit = getenv("FAKE_NCCL_FAIL_AFTER");
  if (limit && atomic_fetch_add(&operations, 1) >= atoi(limit)) {
    while (!comm->aborted) usleep(1000);
    return;
  }
  const char* slow = getenv("FAKE_NCCL_SLOW");
  if (slow) usleep((unsigned)atoi(slow) * 1000);
  int size = comm->size, me = comm->rank, count = 0;
  size_t bytes = w->count * width(w->type);
  Transfer transfers[2 * MAX_RANKS];
  char* parts[MAX_RANKS] = {0};
  switch (w->kind) {
    case TRANSFERS:
      exchange(comm, w->transfers, w->transfer_count);
      free(w->transfers);
      return;
    case REDUCE:
      // `argument` is the root.
      for (int r = 0; r < size; ++r) {
        if (me != w->argument) continue;
        parts[r] = malloc(bytes ? bytes : 1);
        if (r == me) { memcpy(parts[r], w->input, bytes); continue; }
        transfers[count++] = (Transfer){0, r, parts[r], bytes, 0, 0};
      }
      if (me != w->argument) transfers[count++] = (Transfer){1, w->argument, (char*)w->input, bytes, 0, 0};
      exchange(comm, transfers, count);
      if (me == w->argument && !comm->aborted) reduce(parts, size, w->output, w->count, w->type, 0);
      for (int r = 0; r < size; ++r) free(parts[r]);
      return;
    case BROADCAST:
      for (int r = 0; r < size; ++r)
        if (me == w->argument && r != me) transfers[count++] = (Transfer){1, r, (char*)w->input, bytes, 0, 0};
      if (me != w->argument) transfers[count++] = (Transfer){0, w->argument, w->output, bytes, 0, 0};
      exchange(comm, transfers, count);
      return;
    case ALL_GATHER:
      if (getenv("FAKE_NCCL_WRONG")) return;
      memmove(w->output + me * bytes, w->input, bytes);
      for (int r = 0; r < size; ++r) {
        if (r == me) continue;
        transfers[count++] = (Transfer){1, r, w->output + me * bytes, bytes, 0, 0};
        transfers[count++] = (Transfer){0, r, w->output + r * bytes, bytes, 0, 0};
      }
      exchange(comm, transfers, count);
      return;
    default:
      for (int r = 0; r < size; ++r) {
        parts[r] = malloc(bytes ? bytes : 1);
        const char* own = w->kind == REDUCE_SCATTER ? w->input + r * bytes : w->input;
        if (r == me) { memcpy(parts[r], own, bytes); continue; }
        transfers[count++] = (Transfer){1, r, (char*)own, bytes, 0, 0};
        transfers[count++] = (Transfer){0, r, parts[r], bytes, 0, 0};
      }
      exchange(comm, transfers, count);
      if (!comm->aborted) reduce(parts, size, w->output, w->count, w->type, w->argument);
      for (int r = 0; r < size; ++r) free(parts[r]);
  }
}

static void* serve(void* argument) {
  Stream* stream = argument;
  for (;;) {
    pthread_mutex_lock(&stream->lock);
    while (!stream->first) pthread_cond_wait(&stream->changed, &stream->lock);
    Work* work = stream->first;
    stream->first = work->next;
    pthread_mutex_unlock(&stream->lock);
    run(work);
    free(work);
    ++stream->done;
  }
  return NULL;
}

static Stream* make_stream(int number, int device) {
  Stream* stream = calloc(1, sizeof *stream);
  stream->number = number;
  stream->device = device;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, serve, stream);
  pthread_detach(thread);
  return stream;
}

static Stream* defaults[GPUS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void make_defaults(void) {
  for (int device = 0; device < GPUS; ++device) defaults[device] = make_stream(device, device);
}

static Stream* default_of(int device) {
  pthread_once(&once, make_defaults);
  return defaults[device];
}

// The default stream is that of the thread's GPU.
static Stream* stream_of(void* handle) { return handle ? handle : default_of(current); }

static void uses_stream(const char* call, void* handle) { belongs(call, "a stream", stream_of(handle)->device); }
static void uses_event(const char* call, const void* event) { belongs(call, "an event", ((const Event*)event)->device); }
static void uses_communicator(const char* call, const void* comm) {
  belongs(call, "a communicator", ((const Comm*)comm)->device);
}

// Waits until the default stream of a GPU has done what it was given: what fake_gpu.cpp computes comes behind that.
void fake_settle_default(int device) {
  Stream* stream = default_of(device);
  while (stream->done < stream->given) usleep(5);
}

static void enqueue(Stream* handle, Work work) {
  Stream* stream = stream_of(handle);
  ++stream->given;
  Work* copy = malloc(sizeof work);
  *copy = work;
  copy->next = NULL;
  pthread_mutex_lock(&stream->lock);
  if (stream->first) stream->last->next = copy; else stream->first = copy;
  stream->last = copy;
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
}

static long setting(const char* name, long otherwise) {
  const char* text = getenv(name);
  return text ? atol(text) : otherwise;
}

enum { INSUFFICIENT_DRIVER = 35, UNAVAILABLE = 46, NO_SUCH_DEVICE = 101, LAUNCH_FAILURE = 719, RUNTIME = 13000 };

int cudaDriverGetVersion(int* version) { *version = (int)setting("FAKE_GPU_DRIVER", RUNTIME); return 0; }
int cudaRuntimeGetVersion(int* version) { *version = RUNTIME; return 0; }
int cudaGetDeviceCount(int* count) {
  *count = GPUS;
  return setting("FAKE_GPU_DRIVER", RUNTIME) < RUNTIME ? INSUFFICIENT_DRIVER : 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? (int)setting("FAKE_GPU_MULTIPROCESSORS", 132) : attribute == 20 ? (int)setting("FAKE_GPU_MODE", 0) : attribute == 75 ? 9 : 0;
  return 0;
}
int cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  if (setting("FAKE_GPU_MODE", 0) != 0) return UNAVAILABLE;
  *total = (size_t)setting("FAKE_GPU_GIB", 80) << 30;
  *free_bytes = (size_t)setting("FAKE_GPU_FREE", (long)*total);
  return 0;
}

static int forgets_device(void) {
  char name[16] = "", told[32];
  pthread_getname_np(pthread_self(), name, sizeof name);
  snprintf(told, sizeof told, "device %s", name);
  const char* forgets = getenv("FAKE_GPU_FORGETS");
  return forgets && strcmp(forgets, told) == 0;
}

int cudaSetDevice(int device) {
  if (forgets_device()) return 0;
  fake_say("device %d\n", device);
  if (device < 0 || device >= GPUS) return NO_SUCH_DEVICE;
  current = device;
  return 0;
}
int cudaDeviceGetPCIBusId(char* text, int room, int device) { snprintf(text, (size_t)room, "0000:%02x:00.0", device); return 0; }
const char* cudaGetErrorString(int code) { return code ? "an error of the fake" : "no error"; }
int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  static _Atomic int streams;
  (void)flags;
  *stream = make_stream(atomic_fetch_add(&streams, 1) + GPUS, current);
  return 0;
}
int cudaEventCreateWithFlags(void** event, unsigned flags) {
  (void)flags;
  Event* made = calloc(1, sizeof *made);
  made->device = current;
  *event = made;
  return 0;
}
// Kept: a stream may still have to reach it.
int cudaEventDestroy(void* event) {
  uses_event("cudaEventDestroy", event);
  return 0;
}

int cudaEventRecord(void* event, void* stream) {
  Event* e = event;
  uses_event("cudaEventRecord", event);
  uses_stream("cudaEventRecord", stream);
  if (gpu_recorded) gpu_recorded(event, stream_of(stream)->number);
  enqueue(stream, (Work){.kind = RECORD, .event = e, .generation = atomic_fetch_add(&e->recorded, 1) + 1});
  return 0;
}

// Whether a stream of this kind does not wait this time.
static int forgets(const char* whose) {
  static _Atomic int waits;
  const char* asked = getenv("FAKE_GPU_FORGETS");
  size_t length = strlen(whose);
  return asked && strncmp(asked, whose, length) == 0 && waits++ >= atoi(asked + length);
}

int cudaStreamWaitEvent(void* stream, void* event, unsigned flags) {
  (void)flags;
  uses_event("cudaStreamWaitEvent", event);
  uses_stream("cudaStreamWaitEvent", stream);
  Event* e = event;
  const char* whose = stream ? "side" : "default";
  fake_say("wait %s\n", whose);
  if (forgets(whose)) return 0;
  if (gpu_waits) gpu_waits(stream_of(stream)->number, event);
  enqueue(stream, (Work){.kind = WAIT, .event = e, .generation = e->recorded});
  return 0;
}

static int is_lost(void) {
  const char* limit = getenv("FAKE_GPU_LOST_AFTER");
  return limit && given_to_gpu > atoi(limit);
}

int cudaEventQuery(void* event) {
  Event* e = event;
  uses_event("cudaEventQuery", event);
  if (is_lost()) return LAUNCH_FAILURE;
  if (e->reached < e->recorded) return NOT_READY;
  if (gpu_seen) gpu_seen(event);
  return 0;
}

int cudaEventSynchronize(void* event) {
  Event* e = event;
  uses_event("cudaEventSynchronize", event);
  fake_say("sync event\n");
  while (e->reached < e->recorded) usleep(50);
  if (gpu_seen) gpu_seen(event);
  return 0;
}

int cudaEventElapsedTime(float* ms, void* start, void* end) {
  Event *a = start, *b = end;
  uses_event("cudaEventElapsedTime", a);
  uses_event("cudaEventElapsedTime", b);
  const char* fast = getenv("FAKE_GPU_CLOCK");
  *ms = (float)((b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) / 1e6) * (float)(fast ? atoi(fast) : 1);
  return 0;
}

// ---- communicators ----

int ncclGetVersion(int* version) { *version = (int)setting("FAKE_NCCL_VERSION", 22800); return 0; }
const char* ncclGetErrorString(int code) { return code == REMOTE_ERROR ? "remote process exited" : "an error of the fake"; }

int ncclGetUniqueId(ncclUniqueId* id) {
  static _Atomic int number;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, ID_BYTES, "/dev/shm/fake-nccl-%d-%d", getpid(), atomic_fetch_add(&number, 1));
  return 0;
}

// A setting of the library that has the same beginning in all its versions.
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share;
} Config;

static void* connect_behind(void* argument) {
  Comm* comm = argument;
  if (getenv("FAKE_NCCL_NEVER_CONNECT")) return NULL;
  int file = -1;
  while (!comm->aborted && (file = open(comm->name, O_CREAT | O_RDWR, 0600)) < 0) usleep(100);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) { comm->state = SYSTEM_ERROR; return NULL; }
  Shared* shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) { comm->state = SYSTEM_ERROR; return NULL; }
  if (atomic_fetch_add(&shared->joined, 1) + 1 == comm->size) unlink(comm->name);
  while (shared->joined < comm->size && !comm->aborted) usleep(100);
  comm->shared = shared;
  comm->state = SUCCESS;
  return NULL;
}

static Comm* make(const char* name, int rank, int size, int device) {
  Comm* comm = calloc(1, sizeof *comm);
  *comm = (Comm){.rank = rank, .size = size, .device = device, .number = atomic_fetch_add(&communicators, 1), .state = IN_PROGRESS};
  snprintf(comm->name, ID_BYTES, "%s", name);
  pthread_t thread;
  pthread_create(&thread, NULL, connect_behind, comm);
  pthread_detach(thread);
  return comm;
}

int ncclCommInitRankConfig(void** out, int size, ncclUniqueId id, int rank, Config* config) {
  if (size > MAX_RANKS || rank >= size) return INVALID_ARGUMENT;
  if (config->magic != 0xcafebeef || config->blocking != 0 || config->size < sizeof(Config)) return INVALID_ARGUMENT;
  Comm* comm = make(id.internal, rank, size, current);
  fake_say("init %d rank %d of %d\n", comm->number, rank, size);
  *out = comm;
  return IN_PROGRESS;
}

typedef struct { Comm* whole; int colour, key; void** out; } Split;

// All ranks of the whole tell each other their colours and keys; the handle is there when that is done.
static void* split_behind(void* argument) {
  Split split = *(Split*)argument;
  free(argument);
  Comm* whole = split.whole;
  int mine[2] = {split.colour, split.key}, all[MAX_RANKS][2];
  Transfer transfers[2 * MAX_RANKS];
  int count = 0, rank = 0, size = 0;
  for (int r = 0; r < whole->size; ++r) {
    if (r == whole->rank) continue;
    transfers[count++] = (Transfer){1, r, (char*)mine, sizeof mine, 0, 0};
    transfers[count++] = (Transfer){0, r, (char*)all[r], sizeof mine, 0, 0};
  }
  exchange(whole, transfers, count);
  memcpy(all[whole->rank], mine, sizeof mine);
  for (int r = 0; r < whole->size && !whole->aborted; ++r) {
    if (all[r][0] != split.colour) continue;
    ++size;
    rank += all[r][1] < split.key;
  }
  if (split.colour >= 0 && !whole->aborted) {
    char name[ID_BYTES];
    snprintf(name, sizeof name, "%.90s-%d.%d", whole->name, whole->splits, split.colour);
    Comm* comm = make(name, rank, size, whole->device);
    fake_say("split %d rank %d of %d from %s\n", comm->number, rank, size, name);
    *split.out = comm;
  }
  ++whole->splits;
  whole->state = SUCCESS;
  return NULL;
}

int ncclCommSplit(void* handle, int colour, int key, void** out, Config* config) {
  Comm* whole = handle;
  uses_communicator("ncclCommSplit", whole);
  // Parts that don't share what connects ranks would take as much memory again, which nobody predicts.
  if (whole->state != SUCCESS || config->blocking != 0 || config->split_share != 1) return INVALID_ARGUMENT;
  Split* split = malloc(sizeof *split);
  *split = (Split){whole, colour, key, out};
  whole->state = IN_PROGRESS;
  pthread_t thread;
  pthread_create(&thread, NULL, split_behind, split);
  pthread_detach(thread);
  return IN_PROGRESS;
}

int ncclCommFinalize(void* handle) {
  uses_communicator("ncclCommFinalize", handle);
  fake_say("finalize %d\n", ((Comm*)handle)->number);
  return SUCCESS;
}

static void hang(const char* where) {
  const char* hangs = getenv("FAKE_NCCL_HANGS");
  while (hangs && strcmp(hangs, where) == 0) pause();
}

__attribute__((destructor)) static void at_exit(void) { hang("exit"); }

int ncclCommRevoke(void* handle, int flags) {
  Comm* comm = handle;
  uses_communicator("ncclCommRevoke", comm);
  fake_say("revoke %d\n", comm->number);
  if (comm->number == 1) hang("revoke");
  comm->aborted = 1;
  return flags == 0 ? IN_PROGRESS : INVALID_ARGUMENT;
}

int ncclCommAbort(void* handle) {
  Comm* comm = handle;
  uses_communicator("ncclCommAbort", comm);
  fake_say("abort %d\n", comm->number);
  if (comm->number == 1) hang("abort");
  comm->aborted = 1;
  return 0;
}

int ncclCommDestroy(void* handle) {
  uses_communicator("ncclCommDestroy", handle);
  fake_say("destroy %d\n", ((Comm*)handle)->number);
  return 0;
}

int ncclCommGetAsyncError(void* handle, int* code) {
  const char* limit = getenv("FAKE_NCCL_FAIL_AFTER");
  Comm* comm = handle;
  *code = limit && operations > atoi(limit) ? REMOTE_ERROR : comm->state;
  if (*code == SUCCESS && comm->polls > 0) {
    --comm->polls;
    *code = IN_PROGRESS;
  }
  return 0;
}

static int collective(Kind kind, const char* name, const void* in, void* out, size_t count, int type, int argument, void* handle, void* stream) {
  Comm* comm = handle;
  uses_communicator(name, comm);
  uses_stream(name, stream);
  if (comm->state != SUCCESS) return INVALID_ARGUMENT;
  fake_say("%s %d count %zu type %d\n", name, comm->number, count, type);
  if (gpu_work) {
    size_t bytes = count * width(type), all = bytes * (size_t)comm->size;
    // What one has and all get stays as it is there.
    int root = comm->rank == argument, writes = kind == REDUCE ? root : kind == BROADCAST ? !root || in != out : 1;
    Range ranges[] = {{in, kind == REDUCE_SCATTER ? all : bytes, 0}, {out, kind == ALL_GATHER ? all : bytes, writes}};
    gpu_work(stream_of(stream)->number, comm->device, name, ranges, 2);
  }
  enqueue(stream, (Work){.kind = kind, .comm = comm, .input = in, .output = out, .count = count, .type = type, .argument = argument});
  comm->polls = setting("FAKE_NCCL_POLLS", 0);
  return comm->polls > 0 ? IN_PROGRESS : SUCCESS;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  return collective(ALL_REDUCE, "all_reduce", in, out, count, type, op == 2, comm, stream);
}
int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  return collective(ALL_GATHER, "all_gather", in, out, count, type, 0, comm, stream);
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  return collective(REDUCE_SCATTER, "reduce_scatter", in, out, count, type, op == 2, comm, stream);
}
int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* handle, void* stream) {
  Comm* comm = handle;
  if (op != 0 || root < 0 || root >= comm->size) return INVALID_ARGUMENT;
  // What is not the root's is only read.
  return collective(REDUCE, "reduce", in, comm->rank == root ? out : (void*)in, count, type, root, handle, stream);
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  return collective(BROADCAST, "broadcast", in, out, count, type, root, comm, stream);
}

static _Thread_local struct { int depth, count; Comm* comm; Stream* stream; Transfer transfers[4 * MAX_RANKS]; } group;

static void flush(void) {
  if (group.count == 0) return;
  size_t bytes = group.count * sizeof(Transfer);
  Transfer* copy = malloc(bytes);
  memcpy(copy, group.transfers, bytes);
  if (gpu_work) {
    Range ranges[4 * MAX_RANKS];
    for (int i = 0; i < group.count; ++i) {
      Transfer* t = &group.transfers[i];
      ranges[i] = (Range){t->bytes, t->left, !t->sends};
    }
    gpu_work(stream_of(group.stream)->number, group.comm->device, "messages", ranges, group.count);
  }
  enqueue(group.stream, (Work){.kind = TRANSFERS, .comm = group.comm, .transfers = copy, .transfer_count = group.count});
  group.count = 0;
}

static int transfer(int sends, const void* bytes, size_t count, int type, int peer, void* handle, void* stream) {
  Comm* comm = handle;
  uses_communicator(sends ? "ncclSend" : "ncclRecv", comm);
  uses_stream(sends ? "ncclSend" : "ncclRecv", stream);
  fake_say("%s %d count %zu type %d peer %d\n", sends ? "send" : "recv", comm->number, count, type, peer);
  if (comm->state != SUCCESS || peer < 0 || peer >= comm->size || group.count == 4 * MAX_RANKS) return INVALID_ARGUMENT;
  group.comm = comm;
  group.stream = stream;
  group.transfers[group.count++] = (Transfer){sends, peer, (char*)bytes, count * width(type), 0, 0};
  if (group.depth == 0) flush();
  return 0;
}

int ncclSend(const void* bytes, size_t count, int type, int peer, void* comm, void* stream) {
  return transfer(1, bytes, count, type, peer, comm, stream);
}
int ncclRecv(void* bytes, size_t count, int type, int peer, void* comm, void* stream) {
  return transfer(0, bytes, count, type, peer, comm, stream);
}
int ncclGroupStart(void) { ++group.depth; fake_say("group start\n"); return 0; }
int ncclGroupEnd(void) {
  fake_say("group end\n");
  if (--group.depth == 0) flush();
  return 0;
}
