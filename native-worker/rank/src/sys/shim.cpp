// What tch does not wrap: the allocator hook, gradients seeded with a tensor, fused kernels, and opening libtorch_cuda at
// run time.
// Every function that can throw returns a message for the caller to free, or null.

#include <ATen/Config.h>
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace {

char* message_of(const char* text) {
  return strdup(text);
}

template <class Body>
char* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return message_of(error.what());
  } catch (...) {
    return message_of("an exception that is not a std::exception");
  }
}

constexpr int kCategories = 6;

// Live bytes of one kind of device by category. Backward on a GPU allocates from autograd's own thread, hence the mutex.
class Tracker : public c10::MemoryReportingInfoBase {
 public:
  explicit Tracker(bool gpu) : gpu_(gpu) {}

  void reportMemoryUsage(void* ptr, int64_t size, size_t allocated, size_t reserved, c10::Device device) override {
    // On a GPU rank, tensors in host memory are none of the GPU's.
    if (device.is_cpu() == gpu_) {
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (gpu_) {
      reserved_ = static_cast<int64_t>(reserved);
      allocated_ = static_cast<int64_t>(allocated);
    }
    if (size > 0) {
      // Autograd's own thread gives some tensors back when it is not followed any more: where something lies anew, what lay
      // there is gone.
      auto stale = blocks_.find(ptr);
      if (stale != blocks_.end()) forget(stale);
      blocks_[ptr] = Block{size, 0, category_};
      live_[category_] += size;
    } else {
      auto found = blocks_.find(ptr);
      // A block from before the hook was pushed is not ours to subtract.
      if (found == blocks_.end()) {
        return;
      }
      forget(found);
    }
    raise_peak();
  }

  void reportOutOfMemory(int64_t, size_t, size_t, c10::Device) override {}

  bool memoryProfilingEnabled() const override {
    return true;
  }

  void set_category(int category) {
    std::lock_guard<std::mutex> lock(mutex_);
    category_ = category;
  }

  // Counts a block as `bytes` and the rest of it as the allocator's rounding.
  bool settle(void* ptr, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(ptr);
    if (found == blocks_.end() || found->second.bytes < bytes) {
      return false;
    }
    Block& block = found->second;
    int64_t rest = block.bytes - bytes;
    live_[block.category] -= rest;
    live_[kCategories - 1] += rest;
    block.bytes = bytes;
    block.rounding += rest;
    return true;
  }

  void read(int64_t* out) {
    std::lock_guard<std::mutex> lock(mutex_);
    int next = 0;
    for (int64_t bytes : live_) out[next++] = bytes;
    for (int64_t bytes : at_peak_) out[next++] = bytes;
    out[next++] = peak_;
    out[next++] = reserved_at_peak_;
    out[next++] = allocated_;
  }

  void reset_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    peak_ = -1;
    raise_peak();
  }

 private:
  struct Block {
    int64_t bytes;
    int64_t rounding;
    int category;
  };

  void forget(std::unordered_map<void*, Block>::iterator block) {
    live_[block->second.category] -= block->second.bytes;
    live_[kCategories - 1] -= block->second.rounding;
    blocks_.erase(block);
  }

  void raise_peak() {
    int64_t total = 0;
    for (int64_t bytes : live_) total += bytes;
    if (total > peak_) {
      peak_ = total;
      at_peak_ = live_;
      reserved_at_peak_ = reserved_;
    }
  }

  const bool gpu_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::array<int64_t, kCategories> live_{};
  std::array<int64_t, kCategories> at_peak_{};
  int64_t peak_ = 0;
  int64_t reserved_ = 0;
  int64_t allocated_ = 0;
  int64_t reserved_at_peak_ = 0;
  int category_ = 0;
};

std::shared_ptr<Tracker>& tracker() {
  static thread_local std::shared_ptr<Tracker> instance;
  return instance;
}

}  // namespace

extern "C" {

char* shardplan_tracker_install(bool gpu) {
  return guarded([gpu] {
    auto fresh = std::make_shared<Tracker>(gpu);
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, fresh);
    tracker() = fresh;
  });
}

char* shardplan_tracker_remove() {
  return guarded([] {
    if (tracker()) {
      c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
      tracker().reset();
    }
  });
}

void shardplan_tracker_category(int category) {
  if (tracker()) tracker()->set_category(category);
}

// `out` takes 2 * 6 + 3 numbers: live and at-peak bytes by category, the peak, the reserved bytes then, and what a GPU's
// allocator has given out as it says itself.
bool shardplan_tracker_read(int64_t* out) {
  if (!tracker()) return false;
  tracker()->read(out);
  return true;
}

void shardplan_tracker_reset_peak() {
  if (tracker()) tracker()->reset_peak();
}

bool shardplan_tracker_settle(void* ptr, int64_t bytes) {
  return tracker() && tracker()->settle(ptr, bytes);
}

// Gradients of `outputs`, weighted by `output_gradients`, with respect to `inputs`; `results` takes one new tensor
// (or null where there is none) for each input.
char* shardplan_gradients(
    at::Tensor** outputs,
    at::Tensor** output_gradients,
    size_t output_count,
    at::Tensor** inputs,
    size_t input_count,
    at::Tensor** results) {
  return guarded([&] {
    torch::autograd::variable_list ends, seeds, leaves;
    for (size_t i = 0; i < output_count; ++i) {
      ends.push_back(*outputs[i]);
      seeds.push_back(*output_gradients[i]);
    }
    for (size_t i = 0; i < input_count; ++i) {
      leaves.push_back(*inputs[i]);
      results[i] = nullptr;
    }
    auto found = torch::autograd::grad(ends, leaves, seeds, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) results[i] = new at::Tensor(std::move(found[i]));
    }
  });
}

// One AdamW step of `weights`, in place, in one pass over all of them; `step` holds the step's number, from 1.
char* shardplan_fused_adamw(
    at::Tensor* weights,
    at::Tensor* gradients,
    at::Tensor* first,
    at::Tensor* second,
    at::Tensor* step,
    double lr,
    double beta1,
    double beta2,
    double weight_decay,
    double epsilon,
    at::Tensor* divisor) {
  return guarded([&] {
    const auto grad_scale = divisor == nullptr ? std::nullopt : std::optional<at::Tensor>(*divisor);
    at::_fused_adamw_(
        {*weights}, {*gradients}, {*first}, {*second}, {}, {*step}, lr, beta1, beta2, weight_decay, epsilon,
        /*amsgrad=*/false, /*maximize=*/false, grad_scale);
  });
}

// RMSNorm over the last dim; `results` takes two new tensors: the normed values, and what they were divided by, inverted.
char* shardplan_rms_norm(at::Tensor* input, at::Tensor* weight, double epsilon, at::Tensor** results) {
  return guarded([&] {
    const int64_t width = input->size(-1);
    auto [normed, rest] = at::_fused_rms_norm(*input, {width}, *weight, epsilon);
    results[0] = new at::Tensor(std::move(normed));
    results[1] = new at::Tensor(std::move(rest));
  });
}

// Its backward; `results` takes the gradients of the input and of the weight.
char* shardplan_rms_norm_backward(
    at::Tensor* gradient, at::Tensor* input, at::Tensor* rest, at::Tensor* weight, at::Tensor** results) {
  return guarded([&] {
    const int64_t width = input->size(-1);
    auto [of_input, of_weight] =
        at::_fused_rms_norm_backward(*gradient, *input, {width}, *rest, *weight, {true, true});
    results[0] = new at::Tensor(std::move(of_input));
    results[1] = new at::Tensor(std::move(of_weight));
  });
}

// Attention of a GPU by FlashAttention, `[b, heads, s, d]` all; `results` takes two new tensors: what is seen, and the logarithms
// of sums.
char* shardplan_flash_attention(
    at::Tensor* query, at::Tensor* key, at::Tensor* value, bool causal, const double* scale, at::Tensor** results) {
  return guarded([&] {
    auto found = at::_scaled_dot_product_flash_attention(
        *query, *key, *value, /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false,
        scale == nullptr ? std::nullopt : std::optional<double>(*scale));
    results[0] = new at::Tensor(std::move(std::get<0>(found)));
    results[1] = new at::Tensor(std::move(std::get<1>(found)));
  });
}

// Its backward; `results` takes the gradients of queries, keys and values. Sequences are of one length, so there are no lengths to
// hand on, and the state of a dropout that there is not is read by nobody.
char* shardplan_flash_attention_backward(
    at::Tensor* gradient,
    at::Tensor* query,
    at::Tensor* key,
    at::Tensor* value,
    at::Tensor* output,
    at::Tensor* sums,
    bool causal,
    const double* scale,
    at::Tensor** results) {
  return guarded([&] {
    const at::Tensor state = at::empty({2}, query->options().dtype(at::kLong));
    auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_backward(
        *gradient, *query, *key, *value, *output, *sums, at::Tensor(), at::Tensor(), query->size(2), key->size(2),
        /*dropout_p=*/0.0, causal, state, state, scale == nullptr ? std::nullopt : std::optional<double>(*scale));
    results[0] = new at::Tensor(std::move(of_query));
    results[1] = new at::Tensor(std::move(of_key));
    results[2] = new at::Tensor(std::move(of_value));
  });
}

// FlashAttention of sequences of several lengths one behind the other, [tokens, heads, d]; `places` has where each begins and where the
// last one ends.
char* shardplan_flash_attention_packed(
    at::Tensor* query,
    at::Tensor* key,
    at::Tensor* value,
    at::Tensor* places,
    int64_t longest,
    const double* scale,
    at::Tensor** results) {
  return guarded([&] {
    auto found = at::_flash_attention_forward(
        *query, *key, *value, *places, *places, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
        /*return_debug_mask=*/false, scale == nullptr ? std::nullopt : std::optional<double>(*scale));
    results[0] = new at::Tensor(std::move(std::get<0>(found)));
    results[1] = new at::Tensor(std::move(std::get<1>(found)));
  });
}

// Its backward; `results` takes the gradients of queries, keys and values.
char* shardplan_flash_attention_packed_backward(
    at::Tensor* gradient,
    at::Tensor* query,
    at::Tensor* key,
    at::Tensor* value,
    at::Tensor* output,
    at::Tensor* sums,
    at::Tensor* places,
    int64_t longest,
    const double* scale,
    at::Tensor** results) {
  return guarded([&] {
    const at::Tensor state = at::empty({2}, query->options().dtype(at::kLong));
    auto [of_query, of_key, of_value] = at::_flash_attention_backward(
        *gradient, *query, *key, *value, *output, *sums, *places, *places, longest, longest, /*dropout_p=*/0.0,
        /*is_causal=*/true, state, state, scale == nullptr ? std::nullopt : std::optional<double>(*scale));
    results[0] = new at::Tensor(std::move(of_query));
    results[1] = new at::Tensor(std::move(of_key));
    results[2] = new at::Tensor(std::move(of_value));
  });
}

// The address of a tensor's first element, for a dense CPU tensor; null for any other.
void* shardplan_cpu_bytes(const at::Tensor* tensor, size_t* bytes) {
  *bytes = 0;
  if (!tensor->defined() || !tensor->device().is_cpu() || !tensor->is_contiguous()) return nullptr;
  *bytes = tensor->nbytes();
  return tensor->data_ptr();
}

void* shardplan_data_pointer(const at::Tensor* tensor) {
  return tensor->defined() ? tensor->data_ptr() : nullptr;
}

// A copy in host memory that a GPU can read by itself.
char* shardplan_pinned(at::Tensor* tensor, at::Tensor** result) {
  return guarded([&] { *result = new at::Tensor(tensor->pin_memory()); });
}

// Gives a storage so many bytes of new memory, or none; whoever has a view of it has a view of that.
char* shardplan_storage_resize(at::Tensor* tensor, size_t bytes) {
  return guarded([&] {
    c10::StorageImpl* storage = tensor->storage().unsafeGetStorageImpl();
    TORCH_CHECK(storage->allocator() != nullptr, "a storage without an allocator");
    storage->set_data_ptr(storage->allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
  });
}

// Two storages change their memory; whoever has a view of one has a view of what the other had.
char* shardplan_storage_swap(at::Tensor* one, at::Tensor* other) {
  return guarded([&] {
    c10::StorageImpl* first = one->storage().unsafeGetStorageImpl();
    c10::StorageImpl* second = other->storage().unsafeGetStorageImpl();
    const size_t first_bytes = first->nbytes();
    first->set_nbytes(second->nbytes());
    second->set_nbytes(first_bytes);
    second->set_data_ptr(first->set_data_ptr(second->set_data_ptr(c10::DataPtr(nullptr, second->device()))));
  });
}

char* shardplan_storage_bytes(const at::Tensor* tensor, uint64_t* bytes) {
  return guarded([&] { *bytes = tensor->storage().nbytes(); });
}

char* shardplan_open(const char* library) {
  if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr) return nullptr;
  const char* reason = dlerror();
  return message_of(reason != nullptr ? reason : "unknown reason");
}

char* shardplan_torch_config() {
  try {
    return message_of(at::show_config().c_str());
  } catch (...) {
    return message_of("");
  }
}

void shardplan_free(char* text) {
  std::free(text);
}

}  // extern "C"
