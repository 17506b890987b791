// SPDX-License-Identifier: Apache-2.0
// The folder of the compile cache: what is found is what was stored, whatever else happens to its files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "stepgraph/base/file.h"
#include "stepgraph/cache/compile_cache.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace stepgraph {
namespace compile_cache_test {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TemporaryFolder;

CacheKey key_of(const std::string& module, const std::string& backend = "full") { return {"plan", {{"module", module}, {"backend", backend}}}; }

/// A cache in a folder, and what it warned of.
struct Watched {
  explicit Watched(const std::string& folder, int64_t limit = int64_t{1} << 20)
      : cache({folder, limit, [this](const std::string& message) { warnings.push_back(message); }}) {}
  std::vector<std::string> warnings;
  CompileCache cache;
};

std::string file_of(const CompileCache& cache, const CacheKey& key) { return cache.folder() + "/" + key.kind + "/" + key.hash().text() + ".entry"; }
void set_used(const std::string& file, int seconds_ago) { fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds_ago)); }

TEST(CompileCacheKeys, ReadAsTheyWereWritten) {
  const CacheKey key{"plan", {{"a", ""}, {"b", "1:2\n"}, {"", "x"}, {std::string("n\0l", 3), "=,;"}}};
  EXPECT_EQ(key_of_bytes(key_bytes(key)), key);
  const std::string bytes = key_bytes(key);
  for (size_t size = 1; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    try {
      EXPECT_NE(key_of_bytes(part), key) << size;
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), "found no components of a key");
    }
  }
  EXPECT_EQ(error_of([] { key_of_bytes("99999999999999999999:x"); }), "found no components of a key");
  EXPECT_NE((CacheKey{"plan", {{"ab", "c"}}}).hash(), (CacheKey{"plan", {{"a", "bc"}}}).hash());
  EXPECT_NE((CacheKey{"plan", {}}).hash(), (CacheKey{"form", {}}).hash());
}

TEST(CompileCacheKeys, TellWhatDiffers) {
  const CacheKey before{"plan", {{"backend", "full"}, {"module", "1"}, {"old", "x"}, {"skip", ""}}};
  const CacheKey now{"plan", {{"backend", "eager"}, {"module", "1"}, {"new", "y"}, {"skip", "cse"}}};
  EXPECT_EQ(text(differences(before, now)), "backend: was full, now eager; new: was not there, now y; old: was x, now not there; skip: was empty, now cse");
  EXPECT_TRUE(differences(now, now).empty());
}

TEST(CompileCacheFolder, GivesWhatWasStored) {
  const TemporaryFolder folder;
  Watched first(folder / "a/b");
  EXPECT_FALSE(first.cache.find(key_of("1")));
  EXPECT_FALSE(fs::exists(folder / "a")) << "looking makes no folder";
  const std::string content("some\0bytes", 10);
  first.cache.store(key_of("1"), "the first", content);
  first.cache.store(key_of("2"), "the second", "");
  EXPECT_EQ(first.cache.find(key_of("1")), content);
  Watched other(folder / "a/b");
  EXPECT_EQ(other.cache.find(key_of("1")), content);
  EXPECT_EQ(other.cache.find(key_of("2")), "");
  EXPECT_FALSE(other.cache.find(key_of("3")));
  EXPECT_FALSE(other.cache.find({"form", key_of("1").components}));
  other.cache.store(key_of("1"), "", "replaced");
  EXPECT_EQ(first.cache.find(key_of("1")), "replaced");
  EXPECT_EQ(fs::status(folder / "a/b").permissions(), fs::perms::owner_all);
  EXPECT_TRUE(first.warnings.empty() && other.warnings.empty());
}

TEST(CompileCacheFolder, NamesTheNearestEntry) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  CompileCache& cache = watched.cache;
  EXPECT_FALSE(cache.nearest(key_of("1")));
  cache.store({"form", key_of("1").components}, "", "of another kind");
  EXPECT_FALSE(cache.nearest(key_of("1")));
  cache.store(key_of("1", "full"), "both differ", "");
  cache.store(key_of("2", "eager"), "one differs", "");
  cache.store(key_of("2", "segment"), "one differs, older", "");
  set_used(file_of(cache, key_of("2", "segment")), 60);
  EXPECT_EQ(cache.nearest(key_of("2", "reference"))->key, key_of("2", "eager"));
  set_used(file_of(cache, key_of("2", "eager")), 120);
  EXPECT_EQ(cache.nearest(key_of("2", "reference"))->key, key_of("2", "segment"));
  EXPECT_EQ(cache.nearest(key_of("2", "eager"))->key, key_of("2", "eager"));
}

TEST(CompileCacheFolder, ListsEntries) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  watched.cache.store({"plan", {{"a", "1"}}}, "older", std::string(1000, 'x'));
  watched.cache.store({"plan", {{"a", "2"}}}, "newer", "");
  watched.cache.store({"form", {}}, "a form", "");
  set_used(file_of(watched.cache, {"plan", {{"a", "1"}}}), 100);
  std::ofstream(folder / "c/plan/notes.txt") << "not an entry";
  const std::vector<CacheEntry> entries = watched.cache.entries();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].about, "a form");
  EXPECT_EQ(entries[1].about, "newer");
  EXPECT_EQ(entries[2].about, "older");
  EXPECT_EQ(entries[2].key, (CacheKey{"plan", {{"a", "1"}}}));
  EXPECT_GE(entries[2].unused_seconds, 99);
  EXPECT_EQ(entries[2].bytes, static_cast<int64_t>(fs::file_size(entries[2].path)));
  EXPECT_GT(entries[2].bytes, 1000);
  EXPECT_EQ(watched.cache.content(entries[2]), std::string(1000, 'x'));
}

/// Any byte that is changed, and any end that is cut off, is a miss with one warning that names the file; what is stored again is found again.
TEST(CompileCacheDamage, IsAMissWithOneWarning) {
  const TemporaryFolder folder;
  Watched writer(folder / "c");
  const CacheKey key = key_of("1");
  writer.cache.store(key, "about", "content");
  const std::string file = file_of(writer.cache, key), bytes = read_file(file);
  const auto expect_miss = [&](const std::string& damaged, const std::string& what) {
    write_file(file, damaged);
    Watched reader(folder / "c");
    EXPECT_FALSE(reader.cache.find(key)) << what;
    EXPECT_FALSE(reader.cache.find(key)) << what;
    ASSERT_EQ(reader.warnings.size(), 1U) << what;
    EXPECT_TRUE(reader.warnings[0].starts_with("compile cache: " + file + ": ") && reader.warnings[0].ends_with("; it is made again")) << reader.warnings[0];
    EXPECT_NE(reader.cache.entries(true).at(0).problem, "") << what;
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    expect_miss(damaged, "byte " + std::to_string(i));
    expect_miss(bytes.substr(0, i), "cut at " + std::to_string(i));
  }
  expect_miss(bytes + "x", "longer");
  Watched again(folder / "c");
  again.cache.store(key, "about", "content");
  EXPECT_EQ(again.cache.find(key), "content");
  EXPECT_EQ(again.cache.entries(true).at(0).problem, "");
}

TEST(CompileCacheDamage, AnEntryUnderAnotherNameIsNotTaken) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  watched.cache.store(key_of("1"), "", "of 1");
  fs::copy(file_of(watched.cache, key_of("1")), file_of(watched.cache, key_of("2")));
  EXPECT_FALSE(watched.cache.find(key_of("2")));
  ASSERT_EQ(watched.warnings.size(), 1U);
  EXPECT_EQ(watched.warnings[0], "compile cache: " + file_of(watched.cache, key_of("2")) + ": cache entry of another key; it is made again");
  EXPECT_EQ(watched.cache.find(key_of("1")), "of 1");
}

/// A folder in an entry's place, a link that leads nowhere or to itself, a pipe without a writer.
TEST(CompileCacheDamage, WhatIsNoFileIsAMiss) {
  const TemporaryFolder folder;
  const auto place = [&](const std::string& module) { return file_of(Watched(folder / "c").cache, key_of(module)); };
  fs::create_directories(folder / "c/plan");
  fs::create_directory(place("folder"));
  fs::create_symlink("nowhere", place("dangling"));
  fs::create_symlink(fs::path(place("loop")).filename(), place("loop"));
  ASSERT_EQ(mkfifo(place("pipe").c_str(), 0600), 0);
  for (const std::string module : {"folder", "dangling", "loop", "pipe"}) {
    Watched watched(folder / "c");
    EXPECT_FALSE(watched.cache.find(key_of(module))) << module;
    EXPECT_EQ(watched.warnings.size(), module == "dangling" ? 0U : 1U) << module;
  }
  Watched watched(folder / "c");
  EXPECT_EQ(watched.cache.nearest(key_of("x")), std::nullopt);
}

TEST(CompileCacheFolder, WithoutARightIsAWarning) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "no folder";
  Watched watched(folder / "file/below");
  EXPECT_FALSE(watched.cache.find(key_of("1")));
  watched.cache.store(key_of("1"), "", "x");
  watched.cache.store(key_of("2"), "", "x");
  watched.cache.trim();
  EXPECT_TRUE(watched.cache.entries().empty());
  ASSERT_EQ(watched.warnings.size(), 1U);
  EXPECT_TRUE(watched.warnings[0].starts_with("compile cache: cannot ") && watched.warnings[0].ends_with("; what was compiled is not kept"))
      << watched.warnings[0];
}

TEST(CompileCacheFolder, OfEveryoneIsNotTrusted) {
  const TemporaryFolder folder;
  Watched owner(folder / "c");
  owner.cache.store(key_of("1"), "", "x");
  fs::permissions(folder / "c", fs::perms::all);
  Watched watched(folder / "c");
  EXPECT_FALSE(watched.cache.find(key_of("1")));
  watched.cache.store(key_of("2"), "", "x");
  EXPECT_FALSE(fs::exists(file_of(watched.cache, key_of("2"))));
  ASSERT_EQ(watched.warnings.size(), 1U);
  EXPECT_EQ(watched.warnings[0],
            "compile cache: " + (folder / "c") + " can be written by every user of this machine, so it is not used: the code in it would be run");
}

TEST(CompileCacheLimit, TheLeastRecentlyUsedGoFirst) {
  const TemporaryFolder folder;
  Watched watched(folder / "c", 3500);
  const std::string content(1000, 'x');
  for (const std::string module : {"1", "2", "3"}) {
    watched.cache.store(key_of(module), "", content);
    set_used(file_of(watched.cache, key_of(module)), 100 - (module[0] - '0'));
  }
  watched.cache.trim();
  EXPECT_EQ(watched.cache.entries().size(), 3U);
  EXPECT_TRUE(watched.cache.find(key_of("1")));  // now 2 is the one that was not used for longest
  watched.cache.store(key_of("4"), "", content);
  watched.cache.trim();
  EXPECT_TRUE(watched.cache.find(key_of("1")));
  EXPECT_FALSE(watched.cache.find(key_of("2")));
  EXPECT_TRUE(watched.cache.find(key_of("3")));
  EXPECT_TRUE(watched.cache.find(key_of("4")));
  int64_t bytes = 0;
  for (const CacheEntry& entry : watched.cache.entries()) bytes += entry.bytes;
  EXPECT_LE(bytes, 3500);
  watched.cache.store(key_of("5"), "", std::string(4000, 'x'));
  EXPECT_FALSE(watched.cache.find(key_of("5"))) << "larger than all that may be kept";
  EXPECT_EQ(watched.cache.entries().size(), 3U);
  EXPECT_TRUE(watched.warnings.empty());
}

TEST(CompileCacheLimit, WhatKilledWritersLeftGoes) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  watched.cache.store(key_of("1"), "", "x");
  std::ofstream(folder / "c/plan/.writing-1-1") << "of long ago";
  set_used(folder / "c/plan/.writing-1-1", 7200);
  std::ofstream(folder / "c/plan/.writing-1-2") << "of now";
  watched.cache.trim();
  EXPECT_FALSE(fs::exists(folder / "c/plan/.writing-1-1"));
  EXPECT_TRUE(fs::exists(folder / "c/plan/.writing-1-2"));
  EXPECT_TRUE(watched.cache.find(key_of("1")));
}

TEST(CompileCacheFolder, ClearTakesItsOwnFilesAlone) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  watched.cache.store(key_of("1"), "", "x");
  watched.cache.store({"form", {}}, "", "x");
  const std::vector<std::string> others = {"c/notes.txt", "c/plan/notes.txt", "c/plan/0123.entry", "c/Photos/0123456789abcdef0123456789abcdef.entry"};
  fs::create_directory(folder / "c/Photos");
  for (const std::string& other : others) std::ofstream(folder / other) << "mine";
  const CompileCache::Cleared cleared = watched.cache.clear();
  EXPECT_EQ(cleared.entries, 2);
  EXPECT_GT(cleared.bytes, 100);
  EXPECT_TRUE(watched.cache.entries().empty());
  for (const std::string& other : others) EXPECT_TRUE(fs::exists(folder / other)) << other;
  EXPECT_EQ(watched.cache.clear().entries, 0);
}

/// What one process and its threads do to a folder that others use too: what is found is whole and of the right key.
bool use(const std::string& folder, int seed) {
  std::atomic<bool> right{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      CompileCache cache({folder, 40'000, [&](const std::string& problem) { ADD_FAILURE() << problem; right = false; }});
      for (int i = 0; i < 150; ++i) {
        const int number = (i * 7 + seed * 3 + t) % 11;
        const CacheKey key = key_of(std::to_string(number));
        const std::string content(static_cast<size_t>(500 * number), static_cast<char>('a' + number));
        const std::optional<std::string> found = cache.find(key);
        if (found && *found != content) right = false;
        if (!found) cache.store(key, std::to_string(seed), content);
        if (i % 10 == 3) cache.trim();
        if (i % 40 == 20) cache.clear();
        if (i % 25 == 5)
          for (const CacheEntry& entry : cache.entries(true))
            if (!entry.problem.empty()) ADD_FAILURE() << entry.problem, right = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return right;
}

TEST(CompileCacheProcesses, WriteReadTrimAndClearAtOnce) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int process = 1; process <= 3; ++process) {
    children.push_back(fork());
    if (children.back() == 0) _exit(use(folder / "c", process) ? 0 : 1);
  }
  EXPECT_TRUE(use(folder / "c", 0));
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  for (const auto& file : fs::directory_iterator(folder / "c/plan")) EXPECT_FALSE(file.path().filename().string().starts_with(".writing")) << file.path();
}

}  // namespace compile_cache_test
}  // namespace stepgraph
