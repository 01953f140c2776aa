// GPUs for libtorch on host memory, for tests without one: what libtorch_cuda.so registers with libtorch (hooks, allocator,
// guard, kernels), with fake_nccl.c's streams below it.
//
// An operation runs on the CPU's kernel over the same memory, when the default stream has done what it was given before:
// computing is in that stream's order, as on a GPU. What other streams do is on their threads, and may be late.
//
// Each piece of work says what it reads and writes. Where one may meet what another stream still reads or writes, and no
// event puts one before the other, the process ends and names both: not only where they happened to meet. Memory that is
// given back must be nobody's either. Fresh memory is full of NaNs. Memory belongs to a GPU, and work of another that reads or writes it
// ends the process, too.
//
// A line "sync NAME" is written to $FAKE_NCCL_LOG.PID for each operation for which the host would wait for the GPU.

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

extern "C" {
typedef struct {
  const char* begin;
  size_t bytes;
  int writes;
} Range;
void fake_say(const char* format, ...);
void fake_settle_default(int device);
int* fake_device(void);
}

namespace {

// ---- who reads and writes what, in which order ----

// The first are the default streams of the GPUs of these numbers.
constexpr int kStreams = 64;

// Of each stream, how much of its work is done before.
using Clock = std::array<long, kStreams>;

void join(Clock& clock, const Clock& other) {
  for (int i = 0; i < kStreams; ++i) clock[i] = std::max(clock[i], other[i]);
}

struct Access {
  int stream;
  long number;
  const char* begin;
  const char* end;
  bool writes;
  std::string what;
};

struct Block {
  size_t bytes;
  int device;
  std::vector<Access> accesses;
};

std::mutex lock;
// Never destroyed: threads that watch may ask for an event while the process ends.
auto& blocks = *new std::map<const char*, Block>;
std::array<Clock, kStreams> clocks{};
auto& events = *new std::unordered_map<void*, Clock>;
// What this thread has seen to be done.
thread_local Clock seen{};

[[noreturn]] void unordered(const std::string& what, const Access& other) {
  std::fprintf(
      stderr, "fake GPU: %s, but stream %d may still %s that memory in %s, as no event is between them\n", what.c_str(),
      other.stream, other.writes ? "write" : "read", other.what.c_str());
  std::_Exit(70);
}

Block* block_of(const char* address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  auto found = std::prev(after);
  return address < found->first + found->second.bytes ? &found->second : nullptr;
}

// The GPU that this thread is on.
c10::DeviceIndex current() {
  return static_cast<c10::DeviceIndex>(*fake_device());
}

// A thread is on this GPU, until it is on the one before again.
class On {
 public:
  explicit On(int device) : before_(std::exchange(*fake_device(), device)) {}
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  ~On() { *fake_device() = before_; }

 private:
  const int before_;
};

void work(int stream, int device, const char* what, const Range* ranges, size_t count) {
  std::lock_guard<std::mutex> guard(lock);
  Clock& clock = clocks[stream];
  join(clock, seen);
  const long number = ++clock[stream];
  for (size_t i = 0; i < count; ++i) {
    const Range& range = ranges[i];
    Block* block = range.bytes > 0 ? block_of(range.begin) : nullptr;
    if (block == nullptr) continue;
    if (block->device != device) {
      std::fprintf(stderr, "fake GPU: %s on GPU %d, with memory of GPU %d\n", what, device, block->device);
      std::_Exit(70);
    }
    Access own{stream, number, range.begin, range.begin + range.bytes, range.writes != 0, what};
    auto& all = block->accesses;
    for (const Access& other : all) {
      const bool meets = other.begin < own.end && own.begin < other.end && (other.writes || own.writes);
      if (meets && other.number > clock[other.stream]) {
        unordered(std::string(what) + (own.writes ? " writes" : " reads"), other);
      }
    }
    // What comes behind this comes behind those.
    all.erase(
        std::remove_if(
            all.begin(), all.end(),
            [&](const Access& other) {
              const bool within = own.begin <= other.begin && other.end <= own.end;
              return within && (own.writes || (other.stream == stream && !other.writes));
            }),
        all.end());
    all.push_back(std::move(own));
  }
}

// ---- memory ----

constexpr size_t kRound = 512;

size_t allocated = 0;

void give_back(void* address) {
  size_t bytes = 0, left = 0;
  int device = 0;
  {
    std::lock_guard<std::mutex> guard(lock);
    auto found = blocks.find(static_cast<char*>(address));
    // The next who has the memory computes in the default stream.
    device = found->second.device;
    const Clock& clock = clocks[device];
    for (const Access& other : found->second.accesses) {
      if (other.number > std::max(clock[other.stream], seen[other.stream])) unordered("memory is given back", other);
    }
    bytes = found->second.bytes;
    blocks.erase(found);
    left = allocated -= bytes;
  }
  c10::reportMemoryUsageToProfiler(
      address, -static_cast<int64_t>(bytes), left, left,
      c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  std::free(address);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t asked) override {
    const c10::Device device(c10::kCUDA, current());
    if (asked == 0) return c10::DataPtr(nullptr, nullptr, &c10::detail::deleteNothing, device);
    const size_t bytes = (asked + kRound - 1) / kRound * kRound;
    void* address = std::aligned_alloc(kRound, bytes);
    TORCH_CHECK(address != nullptr, "CUDA out of memory");
    std::memset(address, 0xff, bytes);
    size_t now = 0;
    {
      std::lock_guard<std::mutex> guard(lock);
      blocks[static_cast<char*>(address)] = Block{bytes, device.index(), {}};
      now = allocated += bytes;
    }
    c10::reportMemoryUsageToProfiler(address, static_cast<int64_t>(bytes), now, now, device);
    return c10::DataPtr(address, address, &give_back, device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* there, const void* here, size_t bytes) const override { std::memcpy(there, here, bytes); }
};

Memory memory;

std::set<const void*> pinned;

void unpin(void* address) {
  {
    std::lock_guard<std::mutex> guard(lock);
    pinned.erase(address);
  }
  std::free(address);
}

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = std::aligned_alloc(kRound, (bytes + kRound) / kRound * kRound);
    std::lock_guard<std::mutex> guard(lock);
    pinned.insert(address);
    return c10::DataPtr(address, address, &unpin, c10::kCPU);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* there, const void* here, size_t bytes) const override { std::memcpy(there, here, bytes); }
};

PinnedMemory pinned_memory;

bool is_pinned(const void* address) {
  std::lock_guard<std::mutex> guard(lock);
  return pinned.count(address) > 0;
}

c10::DeviceIndex gpus() {
  // CUDA's runtime sees none with a driver that is too old.
  if (std::getenv("FAKE_GPU_DRIVER") != nullptr) return 0;
  const char* text = std::getenv("FAKE_GPUS");
  return static_cast<c10::DeviceIndex>(text != nullptr ? std::atoi(text) : 8);
}

// ---- what the host waits for ----

// The host waits for what the default stream of the thread's GPU was given so far.
void host_waits(const char* what) {
  fake_say("sync %s\n", what);
  std::lock_guard<std::mutex> guard(lock);
  join(seen, clocks[current()]);
}

// Operations that read on the host how large what they make is, or a number of it.
bool host_reads(const std::string& name, const std::vector<c10::IValue>& arguments) {
  static const std::set<std::string> names = {
      "aten::bincount", "aten::equal",   "aten::masked_select", "aten::multinomial", "aten::nonzero",
      "aten::unique",   "aten::_unique2"};
  if (names.count(name) > 0) return true;
  if (name == "aten::repeat_interleave") return arguments[1].isNone();
  // By a mask of which the places are looked for.
  if (name != "aten::index" && name != "aten::index_put_" && name != "aten::_index_put_impl_") return false;
  for (const c10::IValue& index : arguments[1].toListRef()) {
    if (index.isTensor() && index.toTensor().defined() && index.toTensor().scalar_type() == at::kBool) return true;
  }
  return false;
}

// ---- operations ----

at::Tensor empty_like_strided(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType type) {
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
}

size_t span(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

struct Operation {
  std::vector<Range> ranges;
  // Empty tensors that an operation makes as large as it wants, and what stands in for them.
  std::vector<std::pair<at::Tensor, at::Tensor>> grown;
  // As libtorch has it, an operation is on its tensors' GPU, whichever the thread is on.
  std::optional<On> on;

  void is_on(c10::Device device) {
    if (!on.has_value()) on.emplace(device.has_index() ? device.index() : current());
    TORCH_CHECK(!device.has_index() || device.index() == current(), "fake GPU: an operation on GPUs ", device, " and ", current());
  }

  // The same memory as a tensor of the CPU.
  at::Tensor on_host(const at::Tensor& tensor, bool writes, bool is_out) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    is_on(tensor.device());
    const auto options = at::TensorOptions().device(at::kCPU).dtype(tensor.scalar_type());
    if (is_out && tensor.numel() == 0) {
      grown.emplace_back(tensor, at::empty({0}, options));
      return grown.back().second;
    }
    ranges.push_back({static_cast<const char*>(tensor.data_ptr()), span(tensor), writes});
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
  }

  at::Tensor on_gpu(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    at::Tensor made = empty_like_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    if (tensor.numel() > 0) std::memcpy(made.data_ptr(), tensor.data_ptr(), span(tensor));
    ranges.push_back({static_cast<const char*>(made.data_ptr()), span(made), 1});
    return made;
  }

  void begin(const char* what) {
    work(current(), current(), what, ranges.data(), ranges.size());
    ranges.clear();
    fake_settle_default(current());
  }

  void end(const char* what) {
    for (auto& [tensor, stand_in] : grown) {
      if (stand_in.numel() == 0) continue;
      at::native::resize_(tensor, stand_in.sizes());
      std::memcpy(tensor.data_ptr(), stand_in.contiguous().data_ptr(), tensor.nbytes());
      ranges.push_back({static_cast<const char*>(tensor.data_ptr()), span(tensor), 1});
    }
    work(current(), current(), what, ranges.data(), ranges.size());
  }
};

// Any operation: the CPU's kernel on the same memory.
void on_the_cpu(const c10::OperatorHandle& handle, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = handle.schema();
  const auto& arguments = schema.arguments();
  const size_t first = stack->size() - arguments.size();
  const std::vector<c10::IValue> given(stack->begin() + first, stack->end());
  Operation operation;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const bool writes = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, writes, arguments[i].is_out()); };
    if (value.isTensor()) {
      value = host(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(host(tensor));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(host(*tensor)) : std::nullopt);
      }
      value = list;
    } else if (value.isDevice()) {
      if (value.toDevice().is_cuda()) operation.is_on(value.toDevice());
      value = c10::Device(c10::kCPU);
    }
  }
  const std::string& name = schema.name();
  operation.begin(name.c_str());
  if (host_reads(name, given)) host_waits(name.c_str());
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const auto& returns = schema.returns();
  const size_t results = stack->size() - returns.size();
  for (size_t i = 0; i < returns.size(); ++i) {
    c10::IValue& value = (*stack)[results + i];
    const auto* alias = returns[i].alias_info();
    if (alias != nullptr) {
      TORCH_CHECK(alias->isWrite(), "fake GPU: no kernel for the view ", name);
      size_t same = 0;
      while (same < arguments.size() &&
             (arguments[same].alias_info() == nullptr || !(*arguments[same].alias_info() == *alias))) {
        ++same;
      }
      TORCH_CHECK(same < arguments.size(), "fake GPU: nothing that ", name, " gives back");
      value = given[same];
    } else if (value.isTensor()) {
      value = operation.on_gpu(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(operation.on_gpu(tensor));
      value = list;
    }
  }
  operation.end(name.c_str());
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(c10::kCUDA, current())));
  return at::detail::empty_generic(
      size, &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA), type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(c10::kCUDA, current())));
  return empty_like_strided(size, stride, type.value_or(at::kFloat));
}

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const On on(tensor.device().index());
  return at::native::resize_(tensor, size, format);
}

at::Tensor& copy(at::Tensor& there, const at::Tensor& here, bool non_blocking) {
  Operation operation;
  at::Tensor to = operation.on_host(there, true, false);
  const at::Tensor from = operation.on_host(here, false, false);
  operation.begin("copy");
  to.copy_(from);
  if (there.is_cuda() == here.is_cuda()) return there;
  // Only from and to pinned memory does the host not wait.
  const void* host = there.is_cuda() ? here.data_ptr() : there.data_ptr();
  if (!non_blocking || !is_pinned(host)) host_waits(there.is_cuda() ? "copy to the GPU" : "copy from the GPU");
  return there;
}

at::Scalar number(const at::Tensor& tensor) {
  Operation operation;
  const at::Tensor host = operation.on_host(tensor, false, false);
  operation.begin("number");
  host_waits("number");
  return host.item();
}

// fp64 has no fused kernel on GPUs either.
int64_t plain_attention(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    const std::optional<at::Tensor>&,
    double,
    bool,
    std::optional<double>,
    bool) {
  return 0;
}

// The CPU has none.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(
    const at::Tensor& gradient,
    const at::Tensor& input,
    at::IntArrayRef,
    const at::Tensor& rest,
    const std::optional<at::Tensor>& weight,
    std::array<bool, 2>) {
  Operation operation;
  const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, false, false); };
  const auto exact = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor given = host(gradient), read = host(input), scale = host(rest), factor = host(*weight);
  operation.begin("rms_norm_backward");
  const at::Tensor normed = read.to(exact) * scale;
  const at::Tensor wide = given.to(exact);
  const at::Tensor of_weight = (wide * normed).reshape({-1, input.size(-1)}).sum(0).to(factor.scalar_type());
  const at::Tensor scaled = wide * factor;
  const at::Tensor of_input = ((scaled - normed * (scaled * normed).mean(-1, true)) * scale).to(read.scalar_type());
  auto made = std::make_tuple(operation.on_gpu(of_input.contiguous()), operation.on_gpu(of_weight));
  operation.end("rms_norm_backward");
  return made;
}

// What GPUs alone have, and these have not where FAKE_GPU_WITHOUT_KERNELS is set; or they make something else, as it says.
bool is_wrong(const char* name) {
  const char* text = std::getenv("FAKE_GPU_WITHOUT_KERNELS");
  TORCH_CHECK(text == nullptr || std::string(text) == "wrong", "fake GPU: no kernel for ", name);
  return text != nullptr;
}

void check_flash(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  TORCH_CHECK(type == at::kHalf || type == at::kBFloat16, "FlashAttention only support fp16 and bf16 data type");
  TORCH_CHECK(tensor.stride(-1) == 1, "Input tensor must have contiguous last dimension");
  TORCH_CHECK(tensor.size(-1) % 8 == 0 && tensor.size(-1) <= 256, "head_size must be a multiple of 8, and at most 256");
}

// The CPU has it by another name.
std::tuple<
    at::Tensor,
    at::Tensor,
    at::Tensor,
    at::Tensor,
    c10::SymInt,
    c10::SymInt,
    at::Tensor,
    at::Tensor,
    at::Tensor>
flash_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    double dropout,
    bool causal,
    bool,
    std::optional<double> scale) {
  const bool wrong = is_wrong("flash_attention");
  for (const at::Tensor& tensor : {query, key, value}) check_flash(tensor);
  Operation operation;
  const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, false, false); };
  const at::Tensor q = host(query), k = host(key), v = host(value);
  operation.begin("flash_attention");
  auto [output, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, std::nullopt, scale);
  if (wrong) sums = sums * 1.1;
  const at::Tensor made = operation.on_gpu(output.contiguous()), of_sums = operation.on_gpu(sums.contiguous());
  operation.end("flash_attention");
  return {made, of_sums, {}, {}, query.size(2), key.size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& gradient,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& output,
    const at::Tensor& sums,
    const at::Tensor& lengths,
    const at::Tensor& other_lengths,
    c10::SymInt queries,
    c10::SymInt keys,
    double dropout,
    bool causal,
    const at::Tensor&,
    const at::Tensor&,
    std::optional<double> scale) {
  is_wrong("flash_attention_backward");
  for (const at::Tensor& tensor : {query, key, value}) check_flash(tensor);
  TORCH_CHECK(!lengths.defined() && !other_lengths.defined(), "sequences of one length have no lengths");
  TORCH_CHECK(queries == query.size(2) && keys == key.size(2) && sums.is_contiguous(), "other lengths");
  Operation operation;
  const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, false, false); };
  const at::Tensor g = host(gradient), q = host(query), k = host(key), v = host(value), o = host(output);
  const at::Tensor s = host(sums);
  operation.begin("flash_attention_backward");
  auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      g, q, k, v, o, s, dropout, causal, std::nullopt, scale);
  auto made = std::make_tuple(
      operation.on_gpu(of_query.contiguous()),
      operation.on_gpu(of_key.contiguous()),
      operation.on_gpu(of_value.contiguous()));
  operation.end("flash_attention_backward");
  return made;
}

// Of sequences one behind the other, [tokens, heads, width]: where each begins and how long it is.
std::vector<std::array<int64_t, 2>> packed_sequences(const at::Tensor& query, const at::Tensor& places, int64_t longest) {
  TORCH_CHECK(query.dim() == 3 && places.dim() == 1 && places.is_contiguous(), "sequences are not packed");
  TORCH_CHECK(places.scalar_type() == at::kInt, "cu_seqlens_q must have dtype int32");
  std::vector<std::array<int64_t, 2>> sequences;
  const int* place = static_cast<const int*>(places.data_ptr());
  for (int64_t i = 0; i + 1 < places.numel(); ++i) {
    sequences.push_back({place[i], place[i + 1] - place[i]});
    TORCH_CHECK(sequences.back()[1] > 0 && sequences.back()[1] <= longest, "a sequence that is longer than the longest");
  }
  TORCH_CHECK(place[0] == 0 && place[places.numel() - 1] == query.size(0), "sequences that are not all tokens");
  return sequences;
}

at::Tensor of_sequence(const at::Tensor& heads, const std::array<int64_t, 2>& sequence) {
  return heads.narrow(0, sequence[0], sequence[1]).unsqueeze(0).transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> packed_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& places,
    const std::optional<at::Tensor>& other_places,
    c10::SymInt longest,
    c10::SymInt,
    double dropout,
    bool causal,
    bool,
    std::optional<double> scale,
    std::optional<c10::SymInt>,
    std::optional<c10::SymInt>,
    const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&) {
  const bool wrong = is_wrong("packed_attention");
  for (const at::Tensor& tensor : {query, key, value}) check_flash(tensor);
  TORCH_CHECK(places->is_cuda() && other_places->is_cuda(), "cu_seqlens_q must be on CUDA");
  Operation operation;
  const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, false, false); };
  const at::Tensor q = host(query), k = host(key), v = host(value), begin = host(*places);
  operation.begin("packed_attention");
  at::Tensor output = at::empty(q.sizes(), q.options());
  at::Tensor sums = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  for (const auto& sequence : packed_sequences(q, begin, longest.expect_int())) {
    auto [made, sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        of_sequence(q, sequence), of_sequence(k, sequence), of_sequence(v, sequence), dropout, causal, std::nullopt, scale);
    of_sequence(output, sequence).copy_(made);
    sums.narrow(1, sequence[0], sequence[1]).copy_(wrong ? sum[0] * 1.1 : sum[0]);
  }
  const at::Tensor made = operation.on_gpu(output), of_sums = operation.on_gpu(sums);
  operation.end("packed_attention");
  return {made, of_sums, {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_attention_backward(
    const at::Tensor& gradient,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& output,
    const at::Tensor& sums,
    const at::Tensor& places,
    const at::Tensor&,
    c10::SymInt longest,
    c10::SymInt,
    double dropout,
    bool causal,
    const at::Tensor&,
    const at::Tensor&,
    std::optional<double> scale,
    std::optional<c10::SymInt>,
    std::optional<c10::SymInt>) {
  is_wrong("packed_attention_backward");
  for (const at::Tensor& tensor : {query, key, value}) check_flash(tensor);
  TORCH_CHECK(sums.dim() == 2 && sums.size(0) == query.size(1) && sums.size(1) == query.size(0), "sums of other tokens");
  Operation operation;
  const auto host = [&](const at::Tensor& tensor) { return operation.on_host(tensor, false, false); };
  const at::Tensor of_made = host(gradient), q = host(query), k = host(key), v = host(value);
  const at::Tensor made = host(output), of_all = host(sums), begin = host(places);
  operation.begin("packed_attention_backward");
  std::array<at::Tensor, 3> found = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()), at::empty(v.sizes(), v.options())};
  for (const auto& sequence : packed_sequences(q, begin, longest.expect_int())) {
    const at::Tensor sum = of_all.narrow(1, sequence[0], sequence[1]).contiguous().unsqueeze(0);
    auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of_sequence(of_made, sequence), of_sequence(q, sequence), of_sequence(k, sequence), of_sequence(v, sequence),
        of_sequence(made, sequence), sum, dropout, causal, std::nullopt, scale);
    of_sequence(found[0], sequence).copy_(of_query);
    of_sequence(found[1], sequence).copy_(of_key);
    of_sequence(found[2], sequence).copy_(of_value);
  }
  auto result = std::make_tuple(operation.on_gpu(found[0]), operation.on_gpu(found[1]), operation.on_gpu(found[2]));
  operation.end("packed_attention_backward");
  return result;
}

// The CPU multiplies into no other type.
at::Tensor& product_in_another_type(
    const at::Tensor& self,
    const at::Tensor& one,
    const at::Tensor& other,
    at::ScalarType type,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  const bool wrong = is_wrong("addmm.dtype_out");
  TORCH_CHECK(type == out.scalar_type() && self.is_same(out), "out_dtype must be the same as the dtype of the provided out tensor");
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), "mat1 and mat2 must have the same dtype");
  Operation operation;
  at::Tensor into = operation.on_host(out, true, false);
  const at::Tensor left = operation.on_host(one, false, false), right = operation.on_host(other, false, false);
  operation.begin("addmm.dtype_out");
  into.mul_(beta).add_(at::matmul(left.to(type), right.to(type)), wrong ? at::Scalar(2) : alpha);
  operation.end("addmm.dtype_out");
  return out;
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy);
  m.impl("_local_scalar_dense", number);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", static_cast<at::Tensor (*)(const at::Tensor&, int64_t, int64_t, int64_t)>(at::native::unfold));
  m.impl("resize_", resize);
  m.impl("_fused_sdp_choice", plain_attention);
  m.impl("_fused_rms_norm_backward", rms_norm_backward);
  m.impl("_scaled_dot_product_flash_attention", flash_attention);
  m.impl("_scaled_dot_product_flash_attention_backward", flash_attention_backward);
  m.impl("_flash_attention_forward", packed_attention);
  m.impl("_flash_attention_backward", packed_attention_backward);
  m.impl("addmm.dtype_out", product_in_another_type);
  // By one kernel, as GPUs of capability 9 have it: elsewhere libtorch has the host read where each product ends.
  m.impl("_grouped_mm", torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

// ---- what libtorch asks a GPU's library ----

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    uncheckedSetDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(c10::kCUDA, current()); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) *fake_device() = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return gpus(); }
  // libtorch itself has one stream, in whose order all is.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = &memory;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    const On on(stream.device_index());
    host_waits("stream");
  }
  void synchronizeEvent(void*) const override { host_waits("event"); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const On on(device);
    host_waits("device");
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::kCUDA, &memory);
  return true;
}();

}  // namespace

namespace at {

// By this name libtorch asks for them.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  const Generator& getDefaultGenerator(DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  Device getDeviceFromPtr(void* address) const override {
    std::lock_guard<std::mutex> guard(lock);
    const Block* block = block_of(static_cast<const char*>(address));
    TORCH_CHECK(block != nullptr, "fake GPU: no memory of a GPU at ", address);
    return Device(kCUDA, static_cast<DeviceIndex>(block->device));
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return gpus() > 0; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  bool hasCUDA() const override { return gpus() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  std::string showConfig() const override { return "a fake GPU"; }
  DeviceIndex current_device() const override { return current(); }
  DeviceIndex getCurrentDevice() const override { return current(); }
  void setCurrentDevice(DeviceIndex device) const override { *fake_device() = device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return static_cast<DeviceIndex>(std::exchange(*fake_device(), device));
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  DeviceIndex deviceCount() const override { return gpus(); }
  int getNumGPUs() const override { return gpus(); }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  Allocator* getCUDADeviceAllocator() const override { return &memory; }
  void deviceSynchronize(DeviceIndex device) const override {
    const On on(device);
    host_waits("device");
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at

extern "C" {

void gpu_work(int stream, int device, const char* what, const Range* ranges, int count) {
  work(stream, device, what, ranges, static_cast<size_t>(count));
}

void gpu_recorded(void* event, int stream) {
  std::lock_guard<std::mutex> guard(lock);
  join(clocks[stream], seen);
  events[event] = clocks[stream];
}

void gpu_waits(int stream, void* event) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = events.find(event);
  if (found != events.end()) join(clocks[stream], found->second);
}

void gpu_seen(void* event) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = events.find(event);
  if (found != events.end()) join(seen, found->second);
}

}  // extern "C"
