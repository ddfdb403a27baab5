#include "base/toml_file.h"

#include "base/strings.h"
#include "catch.h"
#include "temp_dir.h"

namespace baton {
namespace {

std::string ErrorOf(const std::string& toml) {
  const TempDir directory;
  directory.Write("a.toml", toml);
  const auto table = ReadTomlFile(directory / "a.toml");
  REQUIRE(absl::IsInvalidArgument(table.status()));
  return std::string(Message(table.status()).substr(directory.path().size() + 1));
}

TEST_CASE("ReadTomlFile hints at quotes when a value has none") {
  for (const char* value : {"127.0.0.1:7070", "cpu", "/models/llama"}) {
    const std::string error = ErrorOf(std::string("a = 1\n  listen = ") + value);
    INFO(error);
    CHECK(error.starts_with("a.toml:2: "));
    CHECK(error.find(", after 'listen = ") != std::string::npos);
    CHECK(error.ends_with("'. Texts need quotes, as in name = \"text\""));
  }
}

TEST_CASE("ReadTomlFile gives no hint at quotes when the line has them") {
  CHECK(ErrorOf("listen = \"a").find("quotes") == std::string::npos);
  CHECK(ErrorOf("a = 1\na = 2").find("quotes") == std::string::npos);
  CHECK(ErrorOf("listen: a").find("quotes") == std::string::npos);
}

TEST_CASE("ReadTomlFile names a missing closing quote") {
  CHECK(ErrorOf("listen = \"a\nb = 1").ends_with("The closing quote is missing"));
}

TEST_CASE("ReadTomlFile names the reason when a file cannot be read") {
  CHECK(absl::IsNotFound(ReadTomlFile("/nowhere.toml").status()));
  CHECK(ReadTomlFile("/nowhere.toml").status().message() == "/nowhere.toml: cannot be read: No such file or directory");
}

TEST_CASE("ReadTomlFile shows no text behind the place of an error") {
  CHECK(ErrorOf("keys = baton-secret").find("secret") == std::string::npos);
  CHECK(ErrorOf("a = 1\n[" + std::string(5000, 'x')).size() < 300);
}

}  // namespace
}  // namespace baton
