#include "model/safetensors.h"

#include <sys/stat.h>

#include "absl/strings/match.h"
#include "catch.h"
#include "temp_model.h"

namespace baton {
namespace {

const std::string kPath = "m.safetensors";

absl::StatusOr<SafetensorsFile> OpenBytes(const TempDir& dir, const std::string& bytes) {
  dir.Write(kPath, bytes);
  return SafetensorsFile::Open(dir / kPath);
}

struct Malformed {
  const char* what;
  std::string header;
  size_t data_bytes;
  std::string reason;  // part of the message
};

}  // namespace

TEST_CASE("SafetensorsFile returns each tensor's dtype, shape and bytes") {
  TempDir dir;
  auto file = OpenBytes(dir, SafetensorsBytes(R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 16]},
      "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
      "scalar": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]}})",
                                              "aaaaaaaabbbbbbbbcccccccc"));
  INFO(file.status());
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 3);
  const SafetensorsEntry& b = file->tensors().at("b");
  CHECK(b.dtype == "BF16");
  CHECK(b.shape == std::vector<int64_t>{2, 2});
  CHECK(std::string(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()) == "bbbbbbbb");
  CHECK(file->tensors().at("scalar").shape.empty());
}

TEST_CASE("SafetensorsFile refuses a malformed header with file, tensor and reason") {
  const std::vector<Malformed> cases = {
      {"not JSON", "{\"a\"", 0, "not JSON at byte"},
      {"trailing text", "{} {}", 0, "not JSON at byte"},
      {"an array", "[]", 0, "an array, which the format does not allow here"},
      {"a number", "17", 0, "number 17, which the format does not allow here"},
      {"null tensor", R"({"a": null})", 0, "tensor 'a': header has null"},
      {"deep nesting", std::string(100000, '['), 0, "an array, which the format does not allow here"},
      {"nested objects", R"({"a": {"dtype": {"x": 1}}})", 0, "tensor 'a': header has an object"},
      {"nested metadata", R"({"__metadata__": {"x": {"y": "z"}}})", 0, "header has an object"},
      {"unknown field", R"({"a": {"dtype": "F32", "strides": [1]}})", 0, "unknown field 'strides'"},
      {"missing field", R"({"a": {"dtype": "F32", "shape": [1]}})", 4,
       "tensor 'a': expected dtype, shape and data_off"},
      {"tensor twice",
       R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
       1, "tensor 'a': is listed twice"},
      {"dtype twice", R"({"a": {"dtype": "F32", "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1,
       "dtype is given twice"},
      {"shape twice", R"({"a": {"dtype": "U8", "shape": [1], "shape": [2], "data_offsets": [0, 1]}})", 1,
       "shape is given twice"},
      {"unknown dtype", R"({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}})", 1, "unknown dtype 'F4'"},
      {"negative extent", R"({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}})", 1,
       "number -1, which the format does not allow in shape"},
      {"fractional extent", R"({"a": {"dtype": "U8", "shape": [1.5], "data_offsets": [0, 1]}})", 1,
       "number 1.5, which the format does not allow in shape"},
      {"extent of 2^64", R"({"a": {"dtype": "U8", "shape": [18446744073709551616], "data_offsets": [0, 1]}})", 1,
       "number 18446744073709551616, which the format does not allow in shape"},
      {"product overflows to the right size",
       R"({"a": {"dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})", 0, "overflows"},
      {"element size overflows", R"({"a": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 0]}})",
       0, "overflows"},
      {"too many dimensions", R"({"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 1]}})", 1,
       "more than 8 numbers in shape"},
      {"one offset", R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}})", 1, "expected 2 data_offsets"},
      {"three offsets", R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}})", 1,
       "expected 2 data_offsets"},
      {"offsets backwards", R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}})", 1,
       "expected a range of the file's"},
      {"offsets past the end", R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})", 1,
       "the file is truncated: its header describes 74 bytes, the file has 73. Download it again"},
      {"offset near 2^64", R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [18446744073709551615, 0]}})", 1,
       "expected a range of the file's"},
      {"shape and offsets disagree", R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4,
       "need 8 bytes, data_offsets give 4"},
      {"overlap",
       R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})",
       6, "tensor 'b': expected data at offset 4, got 2 (overlap)"},
      {"gap",
       R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})",
       3, "tensor 'b': expected data at offset 1, got 2 (gap)"},
      {"bytes after the last tensor", R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 9,
       "the rest belongs to no tensor"},
      {"misaligned",
       R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}})",
       5, "tensor 'b': data at offset 1 is not aligned"},
      {"empty name", R"({"": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1, "expected a name of 1 to"},
      {"control characters in a name", R"({"a\nb": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1,
       R"(tensor 'a\nb': expected a name without control)"},
      {"endless name", "{\"" + std::string(5000, 'n') + R"(": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
       1, "expected a name of 1 to"},
      {"invalid UTF-8", "{\"\xff\": 1}", 0, "not JSON at byte"},
  };
  TempDir dir;
  for (const Malformed& malformed : cases) {
    const auto file = OpenBytes(dir, SafetensorsBytes(malformed.header, std::string(malformed.data_bytes, 'x')));
    INFO(malformed.what << ": " << file.status());
    CHECK(file.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(file.status().message().find(kPath) != absl::string_view::npos);
    CHECK(file.status().message().find(malformed.reason) != absl::string_view::npos);
    CHECK(file.status().message().size() < 800);
  }
}

TEST_CASE("SafetensorsFile refuses a file that is cut at any byte") {
  TempDir dir;
  const std::string whole =
      SafetensorsBytes(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", "12345678");
  REQUIRE(OpenBytes(dir, whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const absl::Status status = OpenBytes(dir, whole.substr(0, size)).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "the file is truncated: it"));
  }
}

TEST_CASE("SafetensorsFile names a Git LFS pointer") {
  TempDir dir;
  const auto file = OpenBytes(dir, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  CHECK(file.status().message() == dir / kPath +
                                       ": is a Git LFS pointer, expected the file itself. "
                                       "Run `git lfs pull` in its repository");
}

TEST_CASE("SafetensorsFile refuses a header size above file or limit before it reads") {
  TempDir dir;
  for (const uint64_t claimed : {uint64_t{9}, uint64_t{1} << 62, UINT64_MAX, UINT64_MAX - 7}) {
    CAPTURE(claimed);
    CHECK_FALSE(OpenBytes(dir, LittleEndian64(claimed) + "{}      ").ok());
  }
  dir.Write(kPath, LittleEndian64(64 << 20));
  // The file is sparse, and the header would fit into it.
  std::filesystem::resize_file(dir / kPath, 65 << 20);
  const auto file = SafetensorsFile::Open(dir / kPath);
  INFO(file.status());
  CHECK(file.status().message().find("header: expected at most") != absl::string_view::npos);
  CHECK(file.status().message().find("bytes, got 67108864") != absl::string_view::npos);
}

TEST_CASE("SafetensorsFile refuses a non-regular file without waiting") {
  TempDir dir;
  CHECK(SafetensorsFile::Open(dir / "absent").status().code() == absl::StatusCode::kNotFound);
  CHECK(SafetensorsFile::Open(dir.path()).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK(SafetensorsFile::Open(dir / "pipe").status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace baton
