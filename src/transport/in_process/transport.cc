#include "transport/in_process/transport.h"

#include <sys/mman.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

class InProcessLink final : public Link {
 public:
  InProcessLink(std::shared_ptr<InProcessNetwork> network, std::string target,
                std::shared_ptr<InProcessNetwork::Memory> source)
      : network_(std::move(network)),
        target_(std::move(target)),
        source_(std::move(source)),
        thread_([this] { Run(); }) {}

  // Completes the copies in the queue.
  ~InProcessLink() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({{copies.begin(), copies.end()}, std::move(done)});
    }
    changed_.notify_one();
  }

  std::string Description() const override { return absl::StrCat("in-process copy to ", target_); }

 private:
  struct Job {
    std::vector<BlockCopy> copies;
    absl::AnyInvocable<void(absl::Status)> done;
  };

  void Run() {
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      job.done(Copy(job.copies));
    }
  }

  absl::Status Copy(std::span<const BlockCopy> copies) {
    const std::shared_ptr<InProcessNetwork::Memory> target = network_->Find(target_);
    if (target == nullptr) return absl::UnavailableError(absl::StrCat(target_, " is gone"));
    const Slab &from = source_->slab(), &to = target->slab();
    RETURN_IF_ERROR(CheckCopies(copies, static_cast<int64_t>(from.size()), static_cast<int64_t>(to.size())));
    const std::vector<BlockCopy> runs = Coalesce(copies);
    if (from.device() != nullptr && from.device() == to.device()) {
      return from.device()->CopyRuns(to.data(), from.data(), runs);
    }
    const Slab& copier = from.on_host() ? to : from;  // A device copies to and from the host.
    for (const BlockCopy& run : runs) {
      RETURN_IF_ERROR(
          copier.Copy(to.data() + run.target_offset, from.data() + run.source_offset, static_cast<size_t>(run.bytes)));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<InProcessNetwork> network_;
  const std::string target_;
  const std::shared_ptr<InProcessNetwork::Memory> source_;
  std::mutex mutex_;  // guards queue_ and closing_
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool closing_ = false;
  std::thread thread_;  // the last member, because the thread uses the others
};

}  // namespace

absl::StatusOr<std::shared_ptr<InProcessNetwork::Memory>> InProcessNetwork::Memory::Map(int64_t bytes) {
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("KV slab: expected at least 1 byte, got ", bytes));
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("slab of ", bytes, " bytes: ", std::strerror(errno)));
  }
  return std::make_shared<Memory>(std::span(static_cast<std::byte*>(memory), static_cast<size_t>(bytes)), nullptr);
}

InProcessNetwork::Memory::~Memory() {
  if (owner_ == nullptr) munmap(slab_.data(), slab_.size());
}

std::string InProcessNetwork::Add(std::weak_ptr<Memory> memory) {
  const std::lock_guard lock(mutex_);
  std::string descriptor = absl::StrCat("in-process slab ", ++added_);
  slabs_.emplace(descriptor, std::move(memory));
  return descriptor;
}

void InProcessNetwork::Remove(const std::string& descriptor) {
  const std::lock_guard lock(mutex_);
  slabs_.erase(descriptor);
}

std::shared_ptr<InProcessNetwork::Memory> InProcessNetwork::Find(std::string_view descriptor) const {
  const std::lock_guard lock(mutex_);
  const auto it = slabs_.find(descriptor);
  return it == slabs_.end() ? nullptr : it->second.lock();
}

InProcessTransport::~InProcessTransport() {
  if (memory_ != nullptr) network_->Remove(descriptor_);
}

absl::StatusOr<std::span<std::byte>> InProcessTransport::AllocateSlab(int64_t bytes) {
  BATON_CHECK(memory_ == nullptr, "a worker has one slab");
  ASSIGN_OR_RETURN(memory_, InProcessNetwork::Memory::Map(bytes));
  descriptor_ = network_->Add(memory_);
  return memory_->slab().host();
}

absl::Status InProcessTransport::AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) {
  BATON_CHECK(memory_ == nullptr && owner != nullptr, "a worker has one slab");
  memory_ = std::make_shared<InProcessNetwork::Memory>(memory.First(static_cast<size_t>(bytes)), std::move(owner));
  descriptor_ = network_->Add(memory_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Link>> InProcessTransport::Connect(std::string_view peer_descriptor) {
  BATON_CHECK(memory_ != nullptr, "connected before the slab was allocated");
  if (network_->Find(peer_descriptor) == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "no '", absl::CEscape(absl::string_view(peer_descriptor.data(), peer_descriptor.size()).substr(0, 64)),
        "' in this process"));
  }
  return std::make_unique<InProcessLink>(network_, std::string(peer_descriptor), memory_);
}

}  // namespace baton
