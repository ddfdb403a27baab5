#include "router/worker_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// The longest interval shrinks by this factor with each report, to one half in about 690 reports.
constexpr double kKeep = 0.999;
constexpr double kLongestTimes = 2;  // the silence limit, in longest intervals
constexpr double kForecastTimes = 5;
// The time of a step that counts as hung while the worker has no forecast. First steps may compile
// kernels or read weights.
constexpr absl::Duration kHungWithoutForecast = absl::Seconds(10);

}  // namespace

void WorkerWatch::Attached(const WorkerAddress& name, absl::Time now) {
  const auto lost = lost_.find(name);
  if (lost == lost_.end()) return;
  Advance(now);
  if (now - lost->second.at < kForgiven) {
    Watched& worker = workers_[name] = {.since = clock_, .avoidances = lost->second.avoidances};
    if (ReturnTime(worker) > absl::ZeroDuration()) Return(name, worker);
  }
  lost_.erase(lost);
}

void WorkerWatch::Lost(const WorkerAddress& name, bool announced, absl::Time now) {
  if (options_.silence <= absl::ZeroDuration()) return;
  Advance(now);
  Watched worker = workers_[name];
  workers_.erase(name);
  absl::erase_if(lost_, [&](const auto& entry) { return now - entry.second.at >= kForgiven; });
  if (announced) return;
  if (!IsAvoided(worker.health)) CountAvoidance(worker);
  lost_[name] = {worker.avoidances, now};
}

void WorkerWatch::Reported(const WorkerAddress& name, const WorkerLoad& load, absl::Time now) {
  if (options_.silence <= absl::ZeroDuration()) return;
  Advance(now);
  Watched& worker = workers_.try_emplace(name, Watched{.since = clock_}).first->second;
  const absl::Duration interval = clock_ - std::exchange(worker.reported, clock_);
  worker.longest_interval *= kKeep;
  if (interval <= options_.longest_silence) worker.longest_interval = std::max(worker.longest_interval, interval);

  const std::string stuck = StuckCommandsOf(worker, load), hang = HangOf(load);
  if (!stuck.empty()) {
    if (worker.health != WorkerHealth::kSilent) Avoid(name, worker, WorkerHealth::kSilent, stuck);
  } else if (!hang.empty() && worker.health != WorkerHealth::kHung) {
    worker.hung_steps = load.steps;
    Avoid(name, worker, WorkerHealth::kHung, hang);
  } else if (worker.health == WorkerHealth::kSilent ||
             (worker.health == WorkerHealth::kHung && load.steps != worker.hung_steps)) {
    Return(name, worker);
  } else if (worker.health == WorkerHealth::kReturning && clock_ - worker.since >= ReturnTime(worker)) {
    Set(name, worker, WorkerHealth::kWell, "");
  }
  next_silence_ = std::min(next_silence_, SilentAt(worker));
  FindSilent();
}

void WorkerWatch::Tick(absl::Time now) {
  last_tick_ = now;
  Advance(now);
  FindSilent();
}

void WorkerWatch::FindSilent() {
  if (clock_ < next_silence_) return;
  next_silence_ = absl::InfiniteFuture();
  for (auto& [name, worker] : workers_) {
    ++visits_;
    if (SilentAt(worker) <= clock_) {
      Avoid(name, worker, WorkerHealth::kSilent,
            absl::StrCat("no report for ", absl::FormatDuration(SilenceLimit(worker))));
    }
    next_silence_ = std::min(next_silence_, SilentAt(worker));
  }
}

absl::Time WorkerWatch::NextTick() const {
  if (workers_.empty()) return absl::InfiniteFuture();
  return std::min(last_tick_ + kTick, last_call_ + (next_silence_ - clock_));
}

void WorkerWatch::Advance(absl::Time now) {
  if (last_tick_ == absl::InfinitePast()) last_tick_ = now;
  if (last_call_ != absl::InfinitePast()) clock_ += std::clamp(now - last_call_, absl::ZeroDuration(), kMostCounted);
  last_call_ = now;
}

void WorkerWatch::Set(const WorkerAddress& name, Watched& worker, WorkerHealth health, std::string reason) {
  worker.health = health;
  worker.since = clock_;
  changes_.push_back({name, health, std::move(reason)});
}

void WorkerWatch::Avoid(const WorkerAddress& name, Watched& worker, WorkerHealth health, std::string reason) {
  if (!IsAvoided(worker.health)) CountAvoidance(worker);
  ++(health == WorkerHealth::kSilent ? silences_ : hangs_);
  Set(name, worker, health, std::move(reason));
}

void WorkerWatch::CountAvoidance(Watched& worker) const {
  if (worker.health == WorkerHealth::kWell && clock_ - worker.since >= kForgiven) worker.avoidances = 0;
  ++worker.avoidances;
}

void WorkerWatch::Return(const WorkerAddress& name, Watched& worker) {
  const absl::Duration time = ReturnTime(worker);
  if (time == absl::ZeroDuration()) return Set(name, worker, WorkerHealth::kWell, "");
  Set(name, worker, WorkerHealth::kReturning,
      absl::StrCat("avoided or lost ", worker.avoidances, " times, gets no new requests for ",
                   absl::FormatDuration(time)));
}

absl::Time WorkerWatch::SilentAt(const Watched& worker) const {
  if (worker.health == WorkerHealth::kSilent) return absl::InfiniteFuture();
  return worker.reported + SilenceLimit(worker);
}

absl::Duration WorkerWatch::SilenceLimit(const Watched& worker) const {
  const absl::Duration longest = std::max(options_.silence, options_.longest_silence);
  return std::clamp(kLongestTimes * worker.longest_interval, options_.silence, longest);
}

absl::Duration WorkerWatch::ReturnTime(const Watched& worker) {
  if (worker.avoidances <= 1) return absl::ZeroDuration();
  return std::min(absl::Seconds(int64_t{1} << std::min(worker.avoidances - 2, 10)), kLongestReturn);
}

std::string WorkerWatch::StuckCommandsOf(Watched& worker, const WorkerLoad& load) const {
  if (!load.commands) return "";
  const int64_t before = std::exchange(worker.commands, *load.commands);
  if (worker.commands != before || worker.commands >= load.commands_sent) worker.took_up = clock_;
  const absl::Duration time = clock_ - worker.took_up;
  if (time < SilenceLimit(worker)) return "";
  return absl::StrCat("has taken up no command for ", absl::FormatDuration(time),
                      ", under way: ", load.commands_sent - worker.commands);
}

std::string WorkerWatch::HangOf(const WorkerLoad& load) const {
  const bool forecast = load.step_forecast > absl::ZeroDuration();
  const absl::Duration limit =
      forecast ? std::max(options_.silence, kForecastTimes * load.step_forecast) : kHungWithoutForecast;
  if (load.step_time < limit) return "";
  return absl::StrCat("a step has run for ", absl::FormatDuration(load.step_time), ", forecast ",
                      forecast ? absl::FormatDuration(load.step_forecast) : "none");
}

}  // namespace baton
