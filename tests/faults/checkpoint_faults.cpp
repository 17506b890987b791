// SPDX-License-Identifier: Apache-2.0
// The writer is stopped at every single write of a save, in every way that a disk can fail; whatever it left, a restart finds a good checkpoint.
#include <gtest/gtest.h>
#include <algorithm>
#include <functional>
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/train/checkpoint/checkpoint.h"

namespace stepgraph {
namespace checkpoint_faults_test {

const std::string folder = "runs/a";

CheckpointData checkpoint_of(int64_t step) {
  CheckpointData data;
  data.step = step;
  data.module_hash = "c0ffee";
  data.cursor = "{\"epoch\": " + std::to_string(step) + "}";
  data.seed = UINT64_MAX - static_cast<uint64_t>(step);
  data.extra = {{"note", "step " + std::to_string(step)}};
  const auto value = static_cast<double>(step);
  data.state.emplace_back("a.weight", Literal::full(DType::F32, {3, 2}, value));
  data.state.emplace_back("b.bias", Literal::full(DType::BF16, {5}, -value));
  data.state.emplace_back("c.steps", Literal::integer(DType::I64, step));
  data.state.emplace_back("d.nothing", Literal(DType::F32, {0}));
  return data;
}

void expect_equal(const CheckpointData& a, const CheckpointData& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.module_hash, b.module_hash);
  EXPECT_EQ(a.cursor, b.cursor);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.extra, b.extra);
  EXPECT_EQ(a.state, b.state);
}

const SaveOptions small_shards{.keep = 2, .shard_bytes = 24};

void save(Disk& disk, int64_t step) { save_checkpoint(disk, folder, checkpoint_of(step), small_shards); }

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

/// What `latest` names, if it is there, is complete.
void expect_latest_complete(const Disk& disk) {
  if (!disk.exists(folder + "/latest")) return;
  const std::string text = disk.read_text(folder + "/latest");
  EXPECT_NO_THROW(load_checkpoint(disk, folder + "/" + text.substr(0, text.find(' ')))) << text;
}

std::vector<std::string> temporary_entries(const Disk& disk) {
  std::vector<std::string> out;
  for (const std::string& name : disk.list(folder))
    if (name.starts_with(".")) out.push_back(name);
  return out;
}

TEST(Checkpoint, ReadsBackWhole) {
  FaultyDisk disk;
  for (const int64_t shard_bytes : {int64_t{1}, int64_t{24}, int64_t{1} << 20}) {
    const std::string path = save_checkpoint(disk, folder, checkpoint_of(shard_bytes), {.keep = 9, .shard_bytes = shard_bytes}).path;
    expect_equal(load_checkpoint(disk, path), checkpoint_of(shard_bytes));
    const LoadedCheckpoint loaded = load_latest(disk, folder, "c0ffee");
    expect_equal(loaded.data, checkpoint_of(shard_bytes));
    EXPECT_EQ(loaded.path, path);
    EXPECT_TRUE(loaded.messages.empty());
  }
  CheckpointData empty;
  EXPECT_NO_THROW(load_checkpoint(disk, save_checkpoint(disk, "other", empty).path));
}

TEST(Checkpoint, SameDataGivesSameBytes) {
  FaultyDisk disk;
  CheckpointData swapped = checkpoint_of(10);
  std::reverse(swapped.state.begin(), swapped.state.end());
  const std::string a = save_checkpoint(disk, "a", checkpoint_of(10)).path, b = save_checkpoint(disk, "b", swapped).path;
  ASSERT_EQ(disk.list(a), disk.list(b));
  for (const std::string& name : disk.list(a)) EXPECT_EQ(disk.read(a + "/" + name), disk.read(b + "/" + name)) << name;
}

TEST(Checkpoint, WorksOnARealDisk) {
  const auto disk = posix_disk();
  const std::string place = ::testing::TempDir() + "stepgraph_checkpoint_" + std::to_string(reinterpret_cast<uintptr_t>(&disk)) + "/deep/er";
  save_checkpoint(*disk, place, checkpoint_of(10), small_shards);
  save_checkpoint(*disk, place, checkpoint_of(20), small_shards);
  save_checkpoint(*disk, place, checkpoint_of(30), small_shards);
  expect_equal(load_latest(*disk, place).data, checkpoint_of(30));
  EXPECT_EQ(disk->list(place), (std::vector<std::string>{"latest", "step-00000020", "step-00000030"}));
  disk->remove_tree(place.substr(0, place.find("/deep")));
}

struct Fault {
  DiskFault kind;
  CrashOutcome outcome;
  const char* name;
};
const Fault faults[] = {{DiskFault::Crash, CrashOutcome::SyncedOnly, "crash, synced only"},
                        {DiskFault::Crash, CrashOutcome::NamesOnly, "crash, names only"},
                        {DiskFault::Crash, CrashOutcome::EverythingHeld, "crash, all held"},
                        {DiskFault::Full, CrashOutcome::SyncedOnly, "full"},
                        {DiskFault::Error, CrashOutcome::SyncedOnly, "error"}};

/// Runs `before` on a fresh disk, then `during` with the fault at its k-th write for every k, then `check` on what is left.
void at_every_write(const std::function<void(Disk&)>& before, const std::function<void(Disk&)>& during,
                    const std::function<void(FaultyDisk&, bool completed)>& check) {
  FaultyDisk trial;
  before(trial);
  const int64_t begin = trial.write_operations();
  during(trial);
  const int64_t end = trial.write_operations();
  ASSERT_GT(end, begin + 10);
  for (const Fault& fault : faults)
    for (int64_t k = begin; k < end; ++k) {
      SCOPED_TRACE(std::string(fault.name) + " at write " + std::to_string(k - begin) + " of " + std::to_string(end - begin));
      FaultyDisk disk;
      before(disk);
      disk.fail_at(k, fault.kind);
      bool completed = true;
      try {
        during(disk);
      } catch (const SystemError&) {
        completed = false;
      }
      if (fault.kind == DiskFault::Crash) {
        EXPECT_TRUE(disk.crashed());
        disk.restart(fault.outcome);
      } else {
        disk.clear_fault();
      }
      check(disk, completed);
    }
}

TEST(CheckpointFaults, SecondSaveLeavesStepTenOrACompleteStepTwenty) {
  bool ten = false, twenty = false;
  at_every_write([](Disk& disk) { save(disk, 10); }, [](Disk& disk) { save(disk, 20); },
                 [&](FaultyDisk& disk, bool completed) {
                   expect_latest_complete(disk);
                   const LoadedCheckpoint loaded = load_latest(disk, folder, "c0ffee");
                   ASSERT_TRUE(loaded.data.step == 10 || loaded.data.step == 20);
                   (loaded.data.step == 10 ? ten : twenty) = true;
                   EXPECT_TRUE(!completed || loaded.data.step == 20);
                   expect_equal(loaded.data, checkpoint_of(loaded.data.step));
                   // Life goes on: the same step again, then another, and no leftovers.
                   save(disk, 20);
                   expect_equal(load_latest(disk, folder).data, checkpoint_of(20));
                   save(disk, 30);
                   expect_equal(load_latest(disk, folder).data, checkpoint_of(30));
                   EXPECT_TRUE(temporary_entries(disk).empty());
                   EXPECT_EQ(disk.list(folder).size(), 3u) << "two kept ones and latest";
                   // What was saved is also safe from a power failure now.
                   disk.restart(CrashOutcome::SyncedOnly);
                   expect_equal(load_latest(disk, folder).data, checkpoint_of(30));
                 });
  EXPECT_TRUE(ten && twenty);
}

TEST(CheckpointFaults, TheNextSaveRemovesWhatACrashLeft) {
  bool something_left = false;
  at_every_write([](Disk& disk) { save(disk, 10); }, [](Disk& disk) { save(disk, 20); },
                 [&](FaultyDisk& disk, bool) {
                   something_left = something_left || !temporary_entries(disk).empty();
                   save(disk, 30);
                   EXPECT_TRUE(temporary_entries(disk).empty());
                 });
  EXPECT_TRUE(something_left);
}

TEST(CheckpointFaults, FirstSaveLeavesNothingOrACompleteStepTen) {
  at_every_write([](Disk&) {}, [](Disk& disk) { save(disk, 10); },
                 [](FaultyDisk& disk, bool completed) {
                   expect_latest_complete(disk);
                   if (completed || has_checkpoints(disk, folder)) {
                     expect_equal(load_latest(disk, folder).data, checkpoint_of(10));
                   } else {
                     EXPECT_THROW(load_latest(disk, folder), UserError);
                   }
                   save(disk, 10);
                   EXPECT_TRUE(temporary_entries(disk).empty());
                   disk.restart(CrashOutcome::SyncedOnly);
                   expect_equal(load_latest(disk, folder).data, checkpoint_of(10));
                 });
}

TEST(CheckpointFaults, PruningNeverLeavesHalfOfOne) {
  at_every_write(
      [](Disk& disk) {
        save(disk, 10);
        save(disk, 20);
      },
      [](Disk& disk) { save(disk, 30); },
      [](FaultyDisk& disk, bool) {
        for (const std::string& name : disk.list(folder)) {
          if (!name.starts_with("step-")) continue;
          EXPECT_NO_THROW(load_checkpoint(disk, folder + "/" + name)) << name;
        }
        const LoadedCheckpoint loaded = load_latest(disk, folder);
        EXPECT_GE(loaded.data.step, 20);
        expect_equal(loaded.data, checkpoint_of(loaded.data.step));
      });
}

TEST(CheckpointFaults, AFailedSaveGivesItsRoomBack) {
  FaultyDisk trial;
  save(trial, 10);
  const int64_t begin = trial.write_operations();
  save(trial, 20);
  for (const DiskFault fault : {DiskFault::Full, DiskFault::Error})
    for (int64_t k = begin; k < trial.write_operations(); ++k) {
      FaultyDisk disk;
      save(disk, 10);
      disk.fail_at(k, fault);
      try {
        save(disk, 20);
      } catch (const SystemError&) {
        EXPECT_TRUE(temporary_entries(disk).empty()) << "write " << k - begin;
      }
    }
}

/// Step 20 on top of step 10, damaged; `file` is in step 20's folder.
void expect_refused(FaultyDisk& disk, const std::string& file) {
  const std::string path = folder + "/step-00000020", name = path + "/" + file;
  try {
    load_checkpoint(disk, path);
    FAIL() << "damage was not seen in " << file;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
  const LoadedCheckpoint loaded = load_latest(disk, folder, "c0ffee");
  expect_equal(loaded.data, checkpoint_of(10));
  EXPECT_EQ(loaded.messages.size(), 1u);
  EXPECT_TRUE(mentions(loaded.messages, name));
}

void with_two(const std::function<void(FaultyDisk&)>& body) {
  FaultyDisk disk;
  save(disk, 10);
  save(disk, 20);
  body(disk);
}

std::vector<std::string> files_of_one() {
  std::vector<std::string> files;
  with_two([&](FaultyDisk& disk) { files = disk.list(folder + "/step-00000020"); });
  return files;
}

TEST(CheckpointDamage, EveryFlippedBitIsFoundAndItsFileNamed) {
  for (const std::string& file : files_of_one())
    with_two([&](FaultyDisk& disk) {
      const std::string path = folder + "/step-00000020/" + file;
      for (int64_t byte = 0; byte < disk.file_size(path); ++byte) {
        const int bit = static_cast<int>(byte % 8);
        SCOPED_TRACE(file + " byte " + std::to_string(byte) + " bit " + std::to_string(bit));
        disk.flip_bit(path, byte, bit);
        expect_refused(disk, file);
        disk.flip_bit(path, byte, bit);
      }
    });
}

TEST(CheckpointDamage, EveryTruncationOfALastByteAndEveryDeletedFile) {
  ASSERT_GE(files_of_one().size(), 3u) << "a manifest and at least two shards";
  for (const std::string& file : files_of_one()) {
    SCOPED_TRACE(file);
    const std::string path = folder + "/step-00000020/" + file;
    with_two([&](FaultyDisk& disk) {
      disk.truncate(path, disk.file_size(path) - 1);
      expect_refused(disk, file);
      disk.truncate(path, 0);
      expect_refused(disk, file);
    });
    with_two([&](FaultyDisk& disk) {
      disk.remove_tree(path);
      expect_refused(disk, file);
    });
    with_two([&](FaultyDisk& disk) {
      disk.create(path)->append("longer than before");
      expect_refused(disk, file);
    });
  }
}

TEST(CheckpointDamage, EveryFlippedBitOfLatestIsFound) {
  with_two([&](FaultyDisk& disk) {
    const std::string path = folder + "/latest";
    for (int64_t i = 0; i < 8 * disk.file_size(path); ++i) {
      disk.flip_bit(path, i / 8, static_cast<int>(i % 8));
      const LoadedCheckpoint loaded = load_latest(disk, folder);
      expect_equal(loaded.data, checkpoint_of(20));
      EXPECT_TRUE(mentions(loaded.messages, path));
      disk.flip_bit(path, i / 8, static_cast<int>(i % 8));
    }
  });
}

TEST(CheckpointDamage, NoneGoodSaysWhyForEach) {
  with_two([](FaultyDisk& disk) {
    disk.remove_tree(folder + "/step-00000010/manifest.json");
    disk.flip_bit(folder + "/step-00000020/state-00001-of-00002.safetensors", 20, 0);
    try {
      load_latest(disk, folder);
      FAIL();
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("step-00000010/manifest.json: is missing"), std::string::npos) << text;
      EXPECT_NE(text.find("step-00000020/state-00001-of-00002.safetensors: checksum"), std::string::npos) << text;
    }
  });
  FaultyDisk disk;
  EXPECT_THROW(load_latest(disk, "nowhere"), UserError);
  EXPECT_FALSE(has_checkpoints(disk, "nowhere"));
}

TEST(CheckpointDamage, ARenamedFolderIsNotTakenForAnotherStep) {
  with_two([](FaultyDisk& disk) {
    disk.rename(folder + "/step-00000020", folder + "/step-00000025");
    disk.remove_tree(folder + "/latest");
    const LoadedCheckpoint loaded = load_latest(disk, folder);
    EXPECT_EQ(loaded.data.step, 10);
    EXPECT_TRUE(mentions(loaded.messages, "step-00000025"));
  });
}

TEST(Checkpoint, AnotherModuleIsRefused) {
  with_two([](FaultyDisk& disk) {
    EXPECT_THROW(load_latest(disk, folder, "decaf"), UserError);
    EXPECT_THROW(load_checkpoint(disk, folder + "/step-00000020", "decaf"), UserError);
    EXPECT_NO_THROW(load_checkpoint(disk, folder + "/step-00000020", "c0ffee"));
  });
}

TEST(Checkpoint, ARunResumedFromAnEarlierStepPrunesWhatItLeftBehind) {
  FaultyDisk disk;
  const SaveOptions keep{.keep = 2};
  for (const int64_t step : {10, 20, 30}) save_checkpoint(disk, folder, checkpoint_of(step), {.keep = 9});
  save_checkpoint(disk, folder, checkpoint_of(15), keep);
  EXPECT_EQ(load_latest(disk, folder).data.step, 15);
  EXPECT_EQ(disk.list(folder), (std::vector<std::string>{"latest", "step-00000010", "step-00000015"}));
}

TEST(Checkpoint, TheSameStepAgainLeavesTheFirstUntouchedUntilTheSecondIsThere) {
  FaultyDisk disk;
  CheckpointData other = checkpoint_of(10);
  other.extra["note"] = "second";
  save(disk, 10);
  EXPECT_EQ(save_checkpoint(disk, folder, other, small_shards).path, folder + "/step-00000010.2");
  EXPECT_EQ(load_latest(disk, folder).data.extra["note"], "second");
  expect_equal(load_checkpoint(disk, folder + "/step-00000010"), checkpoint_of(10));
}

TEST(Checkpoint, OptionsAndStateThatCannotBeSaved) {
  FaultyDisk disk;
  EXPECT_THROW(save_checkpoint(disk, folder, checkpoint_of(-1)), UserError);
  EXPECT_THROW(save_checkpoint(disk, folder, checkpoint_of(1), {.keep = 0}), UserError);
  EXPECT_THROW(save_checkpoint(disk, folder, checkpoint_of(1), {.shard_bytes = 0}), UserError);
  CheckpointData twice = checkpoint_of(1);
  twice.state.push_back(twice.state[0]);
  EXPECT_THROW(save_checkpoint(disk, folder, twice), UserError);
  EXPECT_TRUE(temporary_entries(disk).empty());
}

TEST(MatchState, IsByNameWhateverTheOrder) {
  // Two of equal shape, registered the other way round: the values follow their names.
  NamedArrays loaded;
  loaded.emplace_back("a", Literal::full(DType::F32, {2}, 1));
  loaded.emplace_back("b", Literal::full(DType::F32, {2}, 2));
  const std::vector<StateType> expected{{"b", DType::F32, {2}}, {"a", DType::F32, {2}}};
  const NamedArrays matched = match_state(expected, loaded, "step-00000010");
  EXPECT_EQ(matched[0].first, "b");
  EXPECT_EQ(matched[0].second.at(0), 2);
  EXPECT_EQ(matched[1].second.at(0), 1);
}

TEST(MatchState, OneErrorTellsEverything) {
  NamedArrays loaded;
  loaded.emplace_back("extra", Literal(DType::I64, {}));
  loaded.emplace_back("shape", Literal(DType::F32, {2}));
  loaded.emplace_back("type", Literal(DType::F32, {2}));
  const std::vector<StateType> expected{{"moment", DType::F32, {4}}, {"shape", DType::F32, {2, 1}}, {"type", DType::F64, {2}}};
  try {
    match_state(expected, loaded, "step-00000010");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "step-00000010: its state does not match the module: missing 'moment' f32[4]; unexpected 'extra' i64[]; "
                 "'shape' is f32[2], wanted f32[2, 1], 'type' is f32[2], wanted f64[2]");
  }
}

}  // namespace checkpoint_faults_test
}  // namespace stepgraph
