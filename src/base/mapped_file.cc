#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK lets open() return at once for a pipe, which the check below then refuses.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };

  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile({});  // mmap refuses an empty range

  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path, " of ", size, " bytes"));
  }
  MappedFile file({static_cast<const std::byte*>(address), size});
  if (std::string_view(static_cast<const char*>(address), size).starts_with(kLfsPointer)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a Git LFS pointer, expected the file itself. Run `git lfs pull` in its repository"));
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace baton
