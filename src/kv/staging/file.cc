#include "kv/staging/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

// Opens a file without a name. On a file system that lacks O_TMPFILE, it creates a named file and
// removes the name at once.
absl::StatusOr<int> OpenNameless(const std::string& directory) {
  int file = open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    std::string name = directory + "/baton-kv-XXXXXX";
    file = mkostemp(name.data(), O_CLOEXEC);  // mode 0600
    if (file >= 0) unlink(name.c_str());
  }
  if (file >= 0) return file;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot create a file in the directory ", directory));
}

// Returns the error for a file of `bytes` that would exceed the largest size of a file.
absl::Status FileTooLarge(const std::string& directory, int64_t bytes) {
  rlimit limit{};
  const bool by_limit = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes);
  return absl::ResourceExhaustedError(
      absl::StrCat("no file of ", bytes >> 20, " MiB can be created in ", directory, ": ",
                   by_limit ? absl::StrCat("the limit on file size is ", limit.rlim_cur >> 10,
                                           " KiB. Raise it (ulimit -f) or lower --kv-disk-mb")
                            : std::string("its file system does not allow files of this size. Lower --kv-disk-mb")));
}

absl::Status Allocate(int file, const std::string& directory, int64_t bytes) {
  struct statvfs info {};
  if (fstatvfs(file, &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the free space of ", directory));
  const auto free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  const int error = static_cast<double>(bytes) > free ? ENOSPC : posix_fallocate(file, 0, bytes);
  if (error == 0) return absl::OkStatus();
  if (error == EFBIG) return FileTooLarge(directory, bytes);
  if (error != ENOSPC) return absl::ErrnoToStatus(error, absl::StrCat("cannot allocate space in ", directory));
  return absl::ResourceExhaustedError(absl::StrCat("no space for ", bytes >> 20, " MiB in ", directory, ": ",
                                                   static_cast<int64_t>(free) >> 20,
                                                   " MiB are free. Free space or lower --kv-disk-mb"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagingFile>> StagingFile::Create(const std::string& directory, int64_t slots,
                                                                 int64_t slot_bytes) {
  BATON_CHECK(slots > 0 && slot_bytes > 0 && slots <= std::numeric_limits<int64_t>::max() / slot_bytes, "bad sizes");
  ASSIGN_OR_RETURN(const int file, OpenNameless(directory));
  std::unique_ptr<StagingFile> created(new StagingFile(file));
  RETURN_IF_ERROR(Allocate(file, directory, slots * slot_bytes));
  created->tags_.resize(static_cast<size_t>(slots));
  return created;
}

StagingFile::~StagingFile() { close(file_); }

absl::Status StagingFile::Write(int64_t slot, std::span<const std::byte> bytes) {
  const auto begin = slot * std::ssize(bytes);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = pwrite(file_, &bytes[done], bytes.size() - done, begin + static_cast<int64_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return absl::ErrnoToStatus(wrote < 0 ? errno : ENOSPC, "cannot write staged KV");
    done += static_cast<size_t>(wrote);
  }
  tags_[static_cast<size_t>(slot)] = seal_.Make(bytes);
  return absl::OkStatus();
}

absl::Status StagingFile::Read(int64_t slot, std::span<std::byte> bytes) {
  const auto begin = slot * std::ssize(bytes);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t read = pread(file_, &bytes[done], bytes.size() - done, begin + static_cast<int64_t>(done));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return absl::ErrnoToStatus(errno, "cannot read staged KV");
    if (read == 0) return absl::DataLossError("the file of staged KV is truncated");
    done += static_cast<size_t>(read);
  }
  if (seal_.Fits(tags_[static_cast<size_t>(slot)], bytes)) return absl::OkStatus();
  return absl::DataLossError("staged KV differs from the bytes that were written");
}

}  // namespace baton
