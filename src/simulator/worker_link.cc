#include "simulator/worker_link.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

void SimulatedWorkerLink::Start(Worker worker) {
  const bool first = end_ == nullptr;
  BATON_CHECK(first || end_->worker.process.ended(), "two processes of one worker");
  end_ = std::make_shared<WorkerEnd>(WorkerEnd{.worker = std::move(worker)});
  if (!first) return;  // the router attaches after its backoff
  state_ = State::kConnecting;
  end_->streams[++stream_];
  Attached(stream_, end_->worker.introduce());
  Watch(Side::kWorker, end_, stream_);
}

void SimulatedWorkerLink::OnWorkerEnded() {
  const auto lose = [this, stream = stream_] { router_.Run([this, stream] { LoseAtRouter(stream); }); };
  network_.Send({address_, router_.address(), Way::kStream, "Closed"}, lose, lose);
}

void SimulatedWorkerLink::Break() { BreakBoth(stream_); }

void SimulatedWorkerLink::SendToWorker(std::string_view name, const RequestId& request, bool begins,
                                       EventQueue::Event handle) {
  if (state_ != State::kAttached) return;
  network_.Send(
      {router_.address(), address_, Way::kStream, name, request},
      [this, end = end_, stream = stream_, job = begins ? request : RequestId(), handle = std::move(handle)]() mutable {
        SimulatedProcess& process = end->worker.process;
        process.Run([this, end = std::move(end), stream, job = std::move(job), handle = std::move(handle)]() mutable {
          const auto found = end->streams.find(stream);
          if (found == end->streams.end()) return;
          end->last_read = queue_.Now();
          ++found->second.commands;
          if (!job.empty()) found->second.jobs.insert(std::move(job));
          handle();
        });
      },
      [this, stream = stream_] { BreakBoth(stream); });
}

void SimulatedWorkerLink::SendToRouter(std::string_view name, const RequestId& job, bool ends,
                                       EventQueue::Event handle) {
  const Stream stream = StreamOf(job);
  if (stream == 0) return;
  if (ends) end_->streams.at(stream).jobs.erase(job);
  SendOnStream(stream, name, job, std::move(handle));
}

void SimulatedWorkerLink::SendToRouter(std::string_view name, EventQueue::Event handle) {
  if (end_->streams.empty()) return;
  SendOnStream(end_->streams.rbegin()->first, name, "", std::move(handle));
}

std::map<SimulatedWorkerLink::Stream, std::vector<TokenUpdate>> SimulatedWorkerLink::ByStream(
    std::vector<TokenUpdate> updates) {
  std::map<Stream, std::vector<TokenUpdate>> by_stream;
  for (TokenUpdate& update : updates) {
    const Stream stream = StreamOf(update.request_id);
    if (stream == 0) continue;
    if (update.finish) end_->streams.at(stream).jobs.erase(update.request_id);
    by_stream[stream].push_back(std::move(update));
  }
  return by_stream;
}

std::optional<int64_t> SimulatedWorkerLink::commands() const {
  if (end_->streams.empty()) return std::nullopt;
  return end_->streams.rbegin()->second.commands;
}

SimulatedWorkerLink::Stream SimulatedWorkerLink::StreamOf(const RequestId& job) const {
  const auto found =
      std::ranges::find_if(end_->streams, [&](const auto& stream) { return stream.second.jobs.contains(job); });
  return found == end_->streams.end() ? 0 : found->first;
}

void SimulatedWorkerLink::SendOnStream(Stream stream, std::string_view name, std::string_view request,
                                       EventQueue::Event handle) {
  network_.Send(
      {address_, router_.address(), Way::kStream, name, request},
      [this, stream, handle = std::move(handle)]() mutable {
        router_.Run([this, stream, handle = std::move(handle)]() mutable {
          if (state_ != State::kAttached || stream_ != stream) return;
          last_read_ = queue_.Now();
          handle();
        });
      },
      [this, stream] { BreakBoth(stream); });
}

// --- Attempts ----------------------------------------------------------------

void SimulatedWorkerLink::Attempt() {
  if (state_ != State::kIdle) return;
  state_ = State::kConnecting;
  const Stream stream = ++stream_;
  const auto lose = [this, stream] { router_.Run([this, stream] { LoseAtRouter(stream); }); };
  network_.Send(
      {router_.address(), address_, Way::kCall, "Attach"}, [this, stream] { OnAttempt(stream); }, lose);
  queue_.After(kConnectTimeout, [this, stream] {
    router_.Run([this, stream] {
      if (state_ == State::kConnecting) LoseAtRouter(stream);
    });
  });
}

// The attempt has reached the worker's machine.
void SimulatedWorkerLink::OnAttempt(Stream stream) {
  const auto lose = [this, stream] { router_.Run([this, stream] { LoseAtRouter(stream); }); };
  if (end_->worker.process.ended()) {
    return network_.Send({address_, router_.address(), Way::kCall, "Refused"}, lose, lose);
  }
  end_->worker.process.Run([this, end = end_, stream] {
    end->streams[stream];
    Watch(Side::kWorker, end, stream);
    network_.Send(
        {address_, router_.address(), Way::kStream, "Introduction"},
        [this, stream, introduce = end->worker.introduce()]() mutable {
          router_.Run(
              [this, stream, introduce = std::move(introduce)]() mutable { Attached(stream, std::move(introduce)); });
        },
        [this, stream] { BreakBoth(stream); });
  });
}

void SimulatedWorkerLink::Attached(Stream stream, EventQueue::Event introduce) {
  if (state_ != State::kConnecting || stream_ != stream) return;
  state_ = State::kAttached;
  backoff_ = kFirstBackoff;
  Watch(Side::kRouter, end_, stream);
  introduce();
}

// --- Breaks ----------------------------------------------------------------

void SimulatedWorkerLink::BreakBoth(Stream stream) {
  router_.Run([this, stream] { LoseAtRouter(stream); });
  end_->worker.process.Run([this, end = end_, stream] { LoseAtWorker(end, stream); });
}

void SimulatedWorkerLink::LoseAtRouter(Stream stream) {
  if (state_ == State::kIdle || stream_ != stream) return;
  const bool attached = std::exchange(state_, State::kIdle) == State::kAttached;
  const auto reset = [this, end = end_, stream] {
    end->worker.process.Run([this, end, stream] { LoseAtWorker(end, stream); });
  };
  network_.Send({router_.address(), address_, Way::kCall, "Closed"}, reset, reset);
  queue_.After(backoff_, [this] { router_.Run([this] { Attempt(); }); });
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  if (attached) on_lost_();
}

void SimulatedWorkerLink::LoseAtWorker(const std::shared_ptr<WorkerEnd>& end, Stream stream) {
  const auto lost = end->streams.extract(stream);
  if (lost.empty()) return;
  const auto reset = [this, stream] { router_.Run([this, stream] { LoseAtRouter(stream); }); };
  network_.Send({address_, router_.address(), Way::kCall, "Closed"}, reset, reset);
  end->worker.on_gone(stream, lost.mapped().jobs);
}

// --- Keepalive ----------------------------------------------------------------

bool SimulatedWorkerLink::IsOpen(Side side, const WorkerEnd& end, Stream stream) const {
  if (side == Side::kWorker) return end.streams.contains(stream);
  return state_ == State::kAttached && stream_ == stream;
}

void SimulatedWorkerLink::Lose(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream) {
  side == Side::kRouter ? LoseAtRouter(stream) : LoseAtWorker(end, stream);
}

void SimulatedWorkerLink::Watch(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream) {
  absl::Time& last_read = side == Side::kRouter ? last_read_ : end->last_read;
  last_read = std::max(last_read, queue_.Now());
  Ping(side, end, stream);
}

void SimulatedWorkerLink::Ping(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream) {
  SimulatedProcess& self = side == Side::kRouter ? router_ : end->worker.process;
  SimulatedProcess& peer = side == Side::kRouter ? end->worker.process : router_;
  absl::Time& last_read = side == Side::kRouter ? last_read_ : end->last_read;
  const absl::Time due = last_read + kKeepalive;
  if (queue_.Now() < due) {
    return queue_.At(due, [this, side, end, stream, &self] {
      self.Run([this, side, end, stream] {
        if (IsOpen(side, *end, stream)) Ping(side, end, stream);
      });
    });
  }
  const auto fail = [this, stream] { BreakBoth(stream); };
  const auto answered = [this, side, end, &self, &last_read] {
    self.Run([this, end, &last_read] { last_read = queue_.Now(); });
  };
  const auto answer = [this, &self, &peer, fail, answered] {
    peer.Run([this, &self, &peer, fail, answered] {
      network_.Send({peer.address(), self.address(), Way::kCall, "Ping answer"}, answered, fail);
    });
  };
  network_.Send({self.address(), peer.address(), Way::kCall, "Ping"}, answer, fail);
  queue_.After(kKeepalive, [this, side, end, stream, &self, &last_read, sent = queue_.Now()] {
    self.Run([this, side, end, stream, &last_read, sent] {
      if (!IsOpen(side, *end, stream)) return;
      last_read > sent ? Ping(side, end, stream) : Lose(side, end, stream);
    });
  });
}

}  // namespace baton
