#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

// The largest dense models have ~1,200 tensors of ~150 header bytes each.
constexpr uint64_t kMaxHeaderBytes = 8 << 20;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 50;
constexpr size_t kMaxTensors = 1 << 16;
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxNameBytes = 256;  // also keeps error messages short

struct HeaderEntry {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;  // [begin, end) in the data section
};

// A parser of headers, which have this form:
//   {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//    "__metadata__": {"KEY": "TEXT"}}
// It stops at the first token that does not fit the form.
class HeaderParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, HeaderEntry> entries;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return Unexpected(absl::StrCat("number ", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("number ", text.substr(0, 40)));
  }
  bool binary(binary_t&) override { return Unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kArray) return Unexpected(absl::StrCat("number ", value));
    if (array_->size() == kMaxRank) return Fail(absl::StrCat("more than ", kMaxRank, " numbers in ", field_));
    array_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kEntry || field_ != "dtype") return Unexpected("a string");
    if (entry_->dtype.has_value()) return Fail("dtype is given twice");
    entry_->dtype = value.substr(0, 16);
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        state_ = name_ == "__metadata__" ? State::kMetadata : State::kEntry;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ == State::kTop) return BeginTensor(value);
    field_ = value.substr(0, kMaxNameBytes);
    if (field_ == "dtype" || field_ == "shape" || field_ == "data_offsets") return true;
    return Fail(absl::StrCat("unknown field '", absl::CHexEscape(field_), "'"));
  }

  bool end_object() override {
    if (state_ == State::kEntry && !(entry_->dtype && entry_->shape && entry_->offsets)) {
      return Fail("expected dtype, shape and data_offsets, got fewer");
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kEntry || field_ == "dtype") return Unexpected("an array");
    auto& target = field_ == "shape" ? entry_->shape : entry_->offsets;
    if (target.has_value()) return Fail(absl::StrCat(field_, " is given twice"));
    array_ = &target.emplace();
    state_ = State::kArray;
    return true;
  }

  bool end_array() override {
    if (field_ == "data_offsets" && array_->size() != 2) return Fail("expected 2 data_offsets");
    state_ = State::kEntry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("header is not JSON at byte ", position));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kEntry, kArray, kEnd };

  bool Fail(absl::string_view what) {
    error = name_.empty() ? std::string(what) : absl::StrCat("tensor '", name_, "': ", what);
    return false;
  }
  bool Unexpected(absl::string_view what) {
    return Fail(absl::StrCat("header has ", what, ", which the format does not allow ",
                             field_.empty() ? "here" : absl::StrCat("in ", field_)));
  }
  bool BeginTensor(const std::string& name) {
    name_ = name.substr(0, kMaxNameBytes);
    field_.clear();
    if (name.empty() || name.size() > kMaxNameBytes) {
      return Fail(absl::StrCat("expected a name of 1 to ", kMaxNameBytes, " bytes, got ", name.size()));
    }
    // Control characters could forge lines of a log.
    if (std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
      name_ = absl::CHexEscape(name_);
      return Fail("expected a name without control characters");
    }
    if (entries.size() == kMaxTensors) return Fail(absl::StrCat("more than ", kMaxTensors, " tensors"));
    if (name == "__metadata__") return true;
    const auto [position, inserted] = entries.try_emplace(name);
    if (!inserted) return Fail("is listed twice");
    entry_ = &position->second;
    return true;
  }

  State state_ = State::kStart;
  std::string name_, field_;                // tensor and field that the parser reads, for messages
  HeaderEntry* entry_ = nullptr;            // of name_
  std::vector<uint64_t>* array_ = nullptr;  // of field_
};

// Returns the bytes per element of a dtype that the format defines with whole bytes, and 0 for any
// other dtype.
uint64_t ElementBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

// Returns the size in bytes that follows from dtype and shape.
absl::StatusOr<uint64_t> BytesFor(const HeaderEntry& entry) {
  uint64_t bytes = ElementBytes(*entry.dtype);
  if (bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", absl::CHexEscape(*entry.dtype), "'"));
  for (const uint64_t extent : *entry.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > INT64_MAX) {
      return absl::InvalidArgumentError("shape overflows 63 bits of bytes");
    }
  }
  return bytes;
}

// Returns the tensor of `entry` in the data section `data`.
absl::StatusOr<SafetensorsEntry> Locate(const HeaderEntry& entry, std::span<const std::byte> data) {
  const uint64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (begin > end || end > data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets: expected a range of the file's ", data.size(),
                                                   " bytes of data, got [", begin, ", ", end, ")"));
  }
  ASSIGN_OR_RETURN(const uint64_t bytes, BytesFor(entry));
  if (bytes != end - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype and shape need ", bytes, " bytes, data_offsets give ", end - begin));
  }
  const auto view = data.subspan(begin, bytes);
  if (reinterpret_cast<uintptr_t>(view.data()) % ElementBytes(*entry.dtype) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("data at offset ", begin, " is not aligned to its dtype"));
  }
  return SafetensorsEntry{*entry.dtype, {entry.shape->begin(), entry.shape->end()}, view};
}

// Checks that every byte of the data section belongs to exactly one tensor.
absl::Status CheckCover(const std::map<std::string, SafetensorsEntry>& tensors, std::span<const std::byte> data) {
  std::vector<std::pair<std::span<const std::byte>, absl::string_view>> in_order;
  for (const auto& [name, entry] : tensors) in_order.emplace_back(entry.bytes, name);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.data(), a.first.size()) < std::pair(b.first.data(), b.first.size());
  });
  const std::byte* covered = data.data();
  for (const auto& [bytes, name] : in_order) {
    if (bytes.data() != covered) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': expected data at offset ",
                                                     covered - data.data(), ", got ", bytes.data() - data.data(),
                                                     bytes.data() < covered ? " (overlap)" : " (gap)"));
    }
    covered += bytes.size();
  }
  if (covered != data.data() + data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", covered - data.data(), " bytes of tensor data, got ",
                                                   data.size(), ": the rest belongs to no tensor"));
  }
  return absl::OkStatus();
}

// Returns the error of a file that ends before `expected` bytes.
absl::Status Truncated(uint64_t expected, std::span<const std::byte> file) {
  return absl::InvalidArgumentError(absl::StrCat("the file is truncated: its header describes ", expected,
                                                 " bytes, the file has ", file.size(), ". Download it again"));
}

// Returns the text of the header. The data section follows it in the file.
absl::StatusOr<absl::string_view> HeaderText(std::span<const std::byte> file) {
  uint64_t header_bytes;
  if (file.size() < sizeof header_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file is truncated: it has ", file.size(), " bytes. Download it again"));
  }
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: expected at most ", kMaxHeaderBytes, " bytes, got ", header_bytes, ": not safetensors"));
  }
  if (header_bytes > file.size() - sizeof header_bytes) return Truncated(sizeof header_bytes + header_bytes, file);
  return absl::string_view(reinterpret_cast<const char*>(file.data()) + sizeof header_bytes, header_bytes);
}

absl::StatusOr<std::map<std::string, SafetensorsEntry>> ReadTensors(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(file));
  HeaderParser parser;
  bool parsed = false;
  try {
    parsed = nlohmann::json::sax_parse(text, &parser);
  } catch (const nlohmann::json::exception& error) {
    parser.error = error.what();
  }
  if (!parsed) return absl::InvalidArgumentError(parser.error);

  const auto data = file.subspan(sizeof(uint64_t) + text.size());
  uint64_t end = 0;
  for (const auto& [name, header] : parser.entries) end = std::max(end, (*header.offsets)[1]);
  // Larger ends are errors of the header.
  if (end > data.size() && end <= kMaxFileBytes) return Truncated(file.size() - data.size() + end, file);
  std::map<std::string, SafetensorsEntry> tensors;
  for (const auto& [name, header] : parser.entries) {
    absl::StatusOr<SafetensorsEntry> entry = Locate(header, data);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': ", entry.status().message()));
    }
    tensors.emplace(name, *std::move(entry));
  }
  RETURN_IF_ERROR(CheckCover(tensors, data));
  return tensors;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(path, std::move(mapped));
  auto tensors = ReadTensors(file.file_.bytes());
  if (!tensors.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensors.status().message()));
  file.tensors_ = *std::move(tensors);
  return file;
}

}  // namespace baton
