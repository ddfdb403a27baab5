// A reader of the vocabulary in a GGUF file (version 3, little endian). It trusts the file.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "catch.h"

namespace baton {

struct GgufVocabulary {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;  // 3: control, 4: user-defined
};

class GgufReader {
 public:
  explicit GgufReader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  GgufVocabulary Read() {
    REQUIRE(bytes_.substr(0, 4) == "GGUF");
    at_ = 4;
    REQUIRE(Number<uint32_t>() == 3);
    Number<uint64_t>();  // number of tensors
    GgufVocabulary vocabulary;
    for (auto fields = Number<uint64_t>(); fields > 0; --fields) {
      const std::string name = String();
      const auto type = Number<uint32_t>();
      if (name == "tokenizer.ggml.tokens") {
        vocabulary.tokens = Array([&] { return String(); });
      } else if (name == "tokenizer.ggml.merges") {
        vocabulary.merges = Array([&] { return String(); });
      } else if (name == "tokenizer.ggml.token_type") {
        vocabulary.types = Array([&] { return Number<int32_t>(); });
      } else {
        Skip(type);
      }
    }
    return vocabulary;
  }

 private:
  static constexpr uint32_t kString = 8, kArray = 9;

  template <typename T>
  T Number() {
    T value;
    REQUIRE(at_ + sizeof(T) <= bytes_.size());
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string String() {
    const auto size = Number<uint64_t>();
    REQUIRE(size <= bytes_.size() - at_);
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  template <typename Element>
  auto Array(Element element) -> std::vector<decltype(element())> {
    Number<uint32_t>();  // type of the elements
    std::vector<decltype(element())> elements;
    for (auto count = Number<uint64_t>(); count > 0; --count) elements.push_back(element());
    return elements;
  }

  void Skip(uint32_t type) {
    static const std::map<uint32_t, size_t> kSizes = {{0, 1}, {1, 1}, {2, 2},  {3, 2},  {4, 4}, {5, 4},
                                                      {6, 4}, {7, 1}, {10, 8}, {11, 8}, {12, 8}};
    if (type == kString) {
      String();
    } else if (type == kArray) {
      const auto element = Number<uint32_t>();
      for (auto count = Number<uint64_t>(); count > 0; --count) Skip(element);
    } else {
      at_ += kSizes.at(type);
    }
  }

  std::string bytes_;
  size_t at_ = 0;
};

}  // namespace baton
