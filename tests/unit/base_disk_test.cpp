// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>

#include "stepgraph/base/disk.h"
#include "stepgraph/base/file.h"

namespace stepgraph {
namespace base_disk_test {

/// A folder of the test's own, removed at the end.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = (std::filesystem::temp_directory_path() / ("stepgraph_" + test + "_" + std::to_string(::getpid()))).string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};
class FileTest : public FolderTest {};
class DiskTest : public FolderTest {};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// What any disk must do; paths start with `root`.
void check_disk(Disk& disk, const std::string& root) {
  disk.make_directories(root + "/a/b");
  disk.make_directories(root + "/a/b");
  EXPECT_TRUE(disk.is_directory(root + "/a"));
  {
    const auto file = disk.create(root + "/a/two");
    file->append("hello ");
    file->append("world");
    file->sync();
    file->close();
  }
  disk.create(root + "/a/empty")->close();
  disk.sync_directory(root + "/a");
  EXPECT_EQ(disk.read_text(root + "/a/two"), "hello world");
  EXPECT_EQ(disk.file_size(root + "/a/two"), 11);
  EXPECT_EQ(disk.read_range(root + "/a/two", 6, 5).size(), 5U);
  EXPECT_EQ(disk.read_range(root + "/a/two", 11, 0).size(), 0U);
  EXPECT_EQ(static_cast<char>(disk.read_range(root + "/a/two", 6, 1)[0]), 'w');
  EXPECT_EQ(disk.list(root + "/a"), (std::vector<std::string>{"b", "empty", "two"}));
  EXPECT_TRUE(disk.exists(root + "/a/two"));
  EXPECT_FALSE(disk.is_directory(root + "/a/two"));
  EXPECT_FALSE(disk.exists(root + "/a/three"));

  const std::string two = root + "/a/two";
  EXPECT_EQ(error_of([&] { (void)disk.read(two, 10); }), "cannot read " + two + ": found 11 bytes, the limit is 10");
  EXPECT_EQ(error_of([&] { (void)disk.read_range(two, 6, 6); }), "cannot read " + two + ": wanted 6 bytes from 6, it has 11");
  EXPECT_EQ(error_of([&] { (void)disk.read_range(two, 1, INT64_MAX); }), "cannot read " + two + ": wanted 9223372036854775807 bytes from 1, it has 11");
  EXPECT_EQ(error_of([&] { (void)disk.read(root + "/a/none"); }), "cannot open " + root + "/a/none: No such file or directory");
  EXPECT_EQ(error_of([&] { (void)disk.read(root + "/a"); }), "cannot read " + root + "/a: Is a directory");
  EXPECT_EQ(error_of([&] { disk.create(root + "/none/x"); }), "cannot create " + root + "/none/x: No such file or directory");
  EXPECT_EQ(error_of([&] { disk.create(root + "/a"); }), "cannot create " + root + "/a: Is a directory");
  EXPECT_EQ(error_of([&] { disk.rename(root + "/x", root + "/y"); }), "cannot rename " + root + "/x to " + root + "/y: No such file or directory");
  EXPECT_EQ(error_of([&] { disk.make_directories(two); }).substr(0, 21), "cannot make directory");
  EXPECT_EQ(error_of([&] { disk.sync_directory(root + "/none"); }), "cannot open directory " + root + "/none: No such file or directory");
  EXPECT_NE(error_of([&] { (void)disk.list(root + "/none"); }), "no error");

  disk.rename(two, root + "/a/empty");
  EXPECT_EQ(disk.read_text(root + "/a/empty"), "hello world");
  EXPECT_FALSE(disk.exists(two));
  disk.rename(root + "/a", root + "/c");
  EXPECT_EQ(disk.read_text(root + "/c/empty"), "hello world");
  disk.create(root + "/c/empty")->close();
  EXPECT_EQ(disk.file_size(root + "/c/empty"), 0);
  disk.remove_tree(root + "/c");
  disk.remove_tree(root + "/c");
  EXPECT_FALSE(disk.exists(root + "/c"));
  EXPECT_TRUE(disk.list(root).empty());
}

TEST_F(DiskTest, PosixDisk) { check_disk(*posix_disk(), folder_); }

TEST_F(DiskTest, FaultyDiskWithoutFaultsIsADisk) {
  FaultyDisk disk;
  disk.make_directories("root/x");
  check_disk(disk, "root/x");
}

/// The usual way to replace a file so that a crash leaves the old or the new one.
void replace(Disk& disk, const std::string& text) {
  const auto file = disk.create("d/new");
  file->append(text.substr(0, 2));
  file->append(text.substr(2));
  file->sync();
  file->close();
  disk.rename("d/new", "d/state");
  disk.sync_directory("d");
}

void prepare(FaultyDisk& disk) {
  disk.make_directories("d");
  disk.sync_directory("");
  replace(disk, "old state");
}

TEST_F(DiskTest, CarefulReplacementSurvivesACrashAtEveryWrite) {
  FaultyDisk whole;
  prepare(whole);
  const int64_t first = whole.write_operations();
  replace(whole, "new state");
  const int64_t last = whole.write_operations();
  ASSERT_EQ(last - first, 7);
  for (const auto outcome : {CrashOutcome::SyncedOnly, CrashOutcome::NamesOnly, CrashOutcome::EverythingHeld}) {
    for (int64_t k = first; k < last; ++k) {
      FaultyDisk disk;
      prepare(disk);
      disk.fail_at(k, DiskFault::Crash);
      EXPECT_THROW(replace(disk, "new state"), DiskCrash) << k;
      EXPECT_TRUE(disk.crashed());
      EXPECT_THROW((void)disk.read("d/state"), DiskCrash);
      EXPECT_THROW(disk.make_directories("e"), DiskCrash);
      disk.restart(outcome);
      const std::string found = disk.read_text("d/state");
      EXPECT_TRUE(found == "old state" || found == "new state") << k << ": " << found;
      if (k < last - 2) {
        EXPECT_EQ(found, "old state") << k;
      }
    }
  }
}

TEST_F(DiskTest, CarelessReplacementIsFoundOut) {
  FaultyDisk disk;
  prepare(disk);
  const auto file = disk.create("d/new");
  file->append("new state");
  file->close();
  disk.rename("d/new", "d/state");
  disk.sync_directory("d");
  disk.restart(CrashOutcome::SyncedOnly);
  EXPECT_EQ(disk.read_text("d/state"), "") << "the bytes were never synced";
}

TEST_F(DiskTest, UnsyncedNamesAreLost) {
  FaultyDisk disk;
  prepare(disk);
  const auto file = disk.create("d/other");
  file->append("x");
  file->sync();
  disk.restart(CrashOutcome::SyncedOnly);
  EXPECT_FALSE(disk.exists("d/other"));
  EXPECT_THROW(file->append("y"), DiskCrash) << "open since before the restart";
}

TEST_F(DiskTest, ErrorsHappenOnceAndFullnessStays) {
  FaultyDisk disk;
  prepare(disk);
  disk.fail_at(disk.write_operations() + 1, DiskFault::Error);
  const auto file = disk.create("d/x");
  EXPECT_EQ(error_of([&] { file->append("abcd"); }), "cannot write d/x: Input/output error");
  file->append("abcd");
  EXPECT_EQ(disk.read_text("d/x"), "abcd");
  disk.fail_at(disk.write_operations(), DiskFault::Full);
  EXPECT_EQ(error_of([&] { file->append("efgh"); }), "cannot write d/x: No space left on device");
  EXPECT_EQ(disk.read_text("d/x"), "abcdef");
  EXPECT_EQ(error_of([&] { disk.create("d/y"); }), "cannot create d/y: No space left on device");
  disk.remove_tree("d/x");
  disk.clear_fault();
  disk.create("d/y")->append("z");
  disk.flip_bit("d/y", 0, 0);
  EXPECT_EQ(disk.read_text("d/y"), "{");
  disk.truncate("d/y", 0);
  EXPECT_EQ(disk.file_size("d/y"), 0);
}

TEST_F(DiskTest, CrashInTheMiddleOfAppendKeepsHalf) {
  FaultyDisk disk;
  prepare(disk);
  const auto file = disk.create("d/x");
  disk.fail_at(disk.write_operations(), DiskFault::Crash);
  EXPECT_THROW(file->append("abcd"), DiskCrash);
  disk.restart(CrashOutcome::EverythingHeld);
  EXPECT_EQ(disk.read_text("d/x"), "ab");
}

TEST_F(FileTest, WholeFiles) {
  const std::string path = folder_ + "/data.csv";
  EXPECT_EQ(error_of([&] { (void)read_file(path); }), "cannot open " + path + ": No such file or directory");
  EXPECT_EQ(error_of([&] { (void)read_file(folder_); }), "cannot open " + folder_ + ": Is a directory");
  EXPECT_EQ(error_of([&] { write_file(folder_ + "/none/x", ""); }), "cannot open " + folder_ + "/none/x for writing: No such file or directory");
  const std::string content(10000, 'x');
  write_file(path, content);
  EXPECT_EQ(read_file(path), content);
  EXPECT_EQ(read_file(path, 10000), content);
  EXPECT_EQ(read_file_bytes(path).size(), 10000U);
  EXPECT_EQ(error_of([&] { (void)read_file(path, 9999); }), "cannot read " + path + ": larger than the limit of 9999 bytes");
  write_file(path, "");
  EXPECT_EQ(read_file(path), "");
  EXPECT_FALSE(read_file("/proc/self/status").empty()) << "a file whose size says 0";
  EXPECT_THROW(read_file("/dev/zero", 100000), UserError);
  EXPECT_THROW(read_file(path + "/x"), UserError);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

/// Files of this process can have this many bytes: what a full disk is, for a writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(FileTest, AFailedWriteLeavesTheOlderFile) {
  const std::string path = folder_ + "/weights";
  const std::string large(100000, 'x');
  write_file(path, "old");
  {
    const FileSizeLimit limit(4096);
    EXPECT_EQ(error_of([&] { write_file(path, large); }), "cannot write " + path + ": File too large");
    EXPECT_EQ(error_of([&] { write_file(folder_ + "/new", large); }), "cannot write " + folder_ + "/new: File too large");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(names_in(folder_), std::vector<std::string>{"weights"}) << "a part or a temporary is left";
  write_file(path, large);
  EXPECT_EQ(read_file(path), large);
  EXPECT_EQ(names_in(folder_), std::vector<std::string>{"weights"});
}

TEST_F(FileTest, AReplacedFileIsAnotherOneOfTheSameMode) {
  const std::string path = folder_ + "/a", link = folder_ + "/link", dangling = folder_ + "/dangling";
  write_file(path, "1");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat before {}, after {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  EXPECT_EQ(before.st_mode & 07777, 0666 & ~mask);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  std::filesystem::create_symlink("a", link);
  write_file(link, "2");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(path), "2");
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_mode & 07777, 0640u);
  EXPECT_NE(after.st_ino, before.st_ino) << "written over in place: a kill would leave a part";
  std::filesystem::create_symlink(folder_ + "/b", dangling);
  write_file(dangling, "3");
  EXPECT_TRUE(std::filesystem::is_symlink(dangling));
  EXPECT_EQ(read_file(folder_ + "/b"), "3");
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  EXPECT_THROW(write_file(folder_ + "/loop", "4"), UserError);
  write_file("/dev/null", "5");
  EXPECT_EQ(names_in(folder_).size(), 5U);
}

TEST_F(FileTest, WritableIsKnownBeforehand) {
  check_writable(folder_ + "/x");
  EXPECT_TRUE(names_in(folder_).empty());
  EXPECT_EQ(error_of([&] { check_writable(folder_ + "/none/x"); }), "cannot open " + folder_ + "/none/x for writing: No such file or directory");
  EXPECT_EQ(error_of([&] { check_writable(folder_); }), "cannot open " + folder_ + " for writing: Is a directory");
}

TEST_F(FileTest, WhatIsNoRegularFileIsNoData) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    EXPECT_EQ(error_of([&] { (void)read_file(path); }), "cannot read " + path + ": is not a regular file");
    EXPECT_EQ(error_of([&] { (void)read_file_bytes(path); }), "cannot read " + path + ": is not a regular file");
    EXPECT_EQ(error_of([&] { (void)posix_disk()->read(path); }), "cannot read " + path + ": is not a regular file");
  }
  EXPECT_EQ(error_of([&] { (void)read_text("/dev/zero", 1000); }), "cannot read /dev/zero: larger than the limit of 1000 bytes");
  EXPECT_EQ(error_of([&] { (void)read_text("/dev/zero"); }), "cannot read /dev/zero: larger than the limit of 67108864 bytes");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  ::close(ends[1]);
  EXPECT_EQ(read_text("/proc/self/fd/" + std::to_string(ends[0])), "text");
  ::close(ends[0]);
}

}  // namespace base_disk_test
}  // namespace stepgraph
