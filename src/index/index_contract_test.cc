// What every index promises, as rows in the notation of index_script.h.
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "hashing/block_hash.h"
#include "index/run_arena.h"
#include "support/alloc_counter.h"
#include "support/index_script.h"
#include "support/naive_index.h"
#include "support/three_shards.h"

namespace kvr::index {
namespace {

struct Row {
  const char* id;
  const char* script;
};

template <typename Index>
class IndexContract : public testing::Test {
 protected:
  static std::unique_ptr<PrefixIndex> Make(const IndexOptions& options = {}) {
    return std::make_unique<Index>(options);
  }

  static void Check(const std::string& id, std::string_view text,
                    const IndexOptions& options = {}) {
    for (const std::string& failure : script::Run(text, Make, options))
      ADD_FAILURE() << "row " << id << ": " << failure;
  }

  template <typename Rows>
  static void CheckAll(const Rows& rows) {
    for (const Row& row : rows)
      Check(row.id, row.script);
  }
};

// Whether all ranks share what is equal; those of different shards do not.
template <typename Index>
constexpr bool kShares = !std::is_same_v<Index, ThreeShards>;

using Indexes = testing::Types<NaiveIndex, RunArena, ThreeShards>;
TYPED_TEST_SUITE(IndexContract, Indexes);

TYPED_TEST(IndexContract, MatchesTheLongestHeldPrefix) {
  static constexpr Row kRows[] = {
      {"1", "Q[1]={}"},
      {"2", "S0:[1..3]; Q[]={}"},
      {"3", "S0:[1..3]; Q[1..3]={0:3}; n=3"},
      {"4", "S0:[1..3]; Q[1..9]={0:3}"},
      {"5", "S0:[1..9]; Q[1..3]={0:3}"},
      {"6", "S0:[1..3]; Q[9,2,3]={}"},
      {"7", "S0:[1..5]; Q[1,2,3,9,5]={0:3}"},
      {"8", "S0:[1..5]; S1:[1..3]; Q[1..5]={0:5 1:3}"},
      {"28", "S0:[7,7,7,7]; Q[7,7,7,7,7]={0:4}; Q[7,7]={0:2}"},
      {"30", "S0:[1..3]; S0.1:[1,2]; Q[1..3]={0:3 0.1:2}"},
      {"32", "S0:[1..6]; S1:[1..3]; S1:[1..3]+[4,5]; Q[1..6]={0:6 1:5}"},
      {"33", "S0:[1..6]; S0:[1..3]+[9]; Q[1..6]={0:6}; Q[1,2,3,9]={0:4}; n=7"},
      {"34", "S0:[1..6]; S1:[1..3]; S1:[1..3]+[4..9]; Q[1..9]={0:6 1:9}; n=15"},
      {"35",
       "S0,1:[1..3]; S0:[1..3]+[4]; S1:[1..3]+[5]; Q[1..4]={0:4 1:3};"
       "Q[1,2,3,5]={0:3 1:4}"},
      {"40", "S0:[1..3]; S0:[11..13]; Q[1,12]={0:1}; Q[11..13]={0:3}"},
      {"44", "S0:[1..3]; S0:[1..6]; Q[1..6]={0:6}; D; Q[1..6]={0:6}"},
      {"45", "S0:[1..6]; S0:[1..3] !dup; Q[1..6]={0:6}"},
      {"50", "S0:[0/0,0/1]; Q[0,0]={0:2}; R0:[]{^0}; Q[0,0]={}"},
      {"51", "S0:[M/M,M/M-1]; Q[M,M]={0:2}; R0:[]{^M}; Q[M]={}"},
      {"52", "S0:[1,2]; S0:[3,2]; Q[1,2]={0:2}; Q[3,2]={0:2}; Q[2]={}"},
      {"53", "S0:[1..6]; S1:[1..4]; S2:[1,2]; Q[1..6]={0:6 1:4 2:2}"},
      {"63", "S0:[1..6]; S1:[1..5]; S1:[1..3]+[9]; Q[1,2,3,9]={0:3 1:4}; Q[1..6]={0:6 1:5}"},
      {"64", "S0:[1..6]; S1:[1..3]; S1:[1..3]+[9]; Q[1,2,3,9]={0:3 1:4}"},
      {"65", "S0:[1..6]; S0:[1..4]+[9]; S1:[1,2]; Q[1,2,3,4,9]={0:5 1:2}"},
      {"68",
       "S0:[1..8]; S1:[1..4]; S2:[1..6]; S3:[1,2]; S0:[1..4]+[99];"
       "Q[1..8]={0:8 1:4 2:6 3:2}; Q[1,2,3,4,99]={0:5 1:4 2:4 3:2}; n=21"},
      {"69",
       "S0:[1..6]; S0:[1..3]+[9]; S0:[1..3]+[10]; Q[1,2,3,9]={0:4}; Q[1,2,3,10]={0:4};"
       "Q[1..6]={0:6}; n=8"},
      {"74", "S0:[1,2]; S0:[1,2]+[3,4]; S0:[1..4]+[5,6]; Q[1..6]={0:6}"},
      {"75", "S0:[1,2]; S1:[1..4]; S0:[1,2]+[3,4]; S1:[1..4]+[5,6]; Q[1..6]={0:4 1:6}"},
      {"77", "S0.4294967295,M.0:[1,2]; Q[1,2]={0.4294967295:2 M:2}"},
      {"87", "S0:[1,2,1,2]; Q[1,2,1,2,1]={0:4}; Q[1,2,1]={0:3}"},
      {"101",
       "S0:[1..6]; S0:[1,2]+[9]; S1:[1,2,3,4,50]; Q[1,2,3,4,50]={0:4 1:5};"
       "Q[1..6]={0:6 1:4}; Q[1,2,9]={0:3 1:2}"},
      {"102", "S0:[1..3]; S0:[1..3]+[4]; Q[1..4]={0:4}"},
      {"104", "S0:[1..3]; S1:[1,5,6]; S0:[1]+[5,6]; Q[1,5,6]={0:3 1:3}; Q[1..3]={0:3 1:1}"},
      {"bug 49",
       "S0:[1..4]; Q[1..4]={0:4}; Q[1,2]={0:2}; Q[2]={}; Q[1,3]={0:1};"
       "S0:[1..4]+[5,6]; Q[1..6]={0:6}; S0:[1,2]+[7,8]; Q[1,2,7,8]={0:4}; Q[1..6]={0:6}"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, ReportsWhatAStoreCameTo) {
  static constexpr Row kRows[] = {
      {"9", "S0:^777+[1] !pnf; Q[1]={}; n=0"},
      {"10", "S0:[1..3]; S1:[1..3]+[4] !pnf; Q[1..4]={0:3}"},
      {"11", "S0:[1..3]; S0:[1..3] !dup; Q[1..3]={0:3}; n=3"},
      {"12a", "S0:[]; n=0; clean"},
      {"12b", "S0:^777+[] !pnf; clean"},
      {"12c", "S0:[1..3]; S0:[1,2]+[]; Q[1..3]={0:3}; n=3"},
      {"49", "S0:^300+[1/100,3/300] !inv; Q[1]={}; Q[1,3]={}; clean"},
      {"T5", "S0:^777+[1] !pnf; S0:[1]; Q[1]={0:1}"},
      {"parent 0 is no root", "S0:^0+[1/1] !pnf; Q[1]={}"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, RemovesBlocks) {
  static constexpr Row kRows[] = {
      {"13", "S0:[1..5]; R0:[1..5]{4}; Q[1..5]={0:4}; n=4"},
      {"14", "S0:[1..5]; R0:[1..5]{0}; Q[1..5]={}; n=4"},
      {"15", "S0:[1..5]; R0:[1..5]{2}; Q[1..5]={0:2}; S0:[1,2]+[3]; Q[1..5]={0:3|5}"},
      {"16",
       "S0:[1..3]; S0:[1..3]+[7]; S0:[1..3]+[8]; R0:[1..3]{1}; Q[1,2,3,7]={0:1};"
       "S0:[1]+[2]; Q[1,2,3,7]={0:2|4}; S0:[1,2]+[3] !any; Q[1,2,3,7]={0:3|4}"},
      {"16b",
       "S0:[1..3]; S0:[1..3]+[7]; S0:[1..3]+[8]; S1:[1,2,3,7]; R0:[1..3]{1};"
       "Q[1,2,3,7]={0:1 1:4}; S0:[1]+[2,3]; Q[1,2,3,7]={0:4 1:4}; n=9"},
      {"17", "R5:[]{^1} !bnf"},
      {"18", "S0:[1..3]; R0:[]{^999} !bnf; Q[1..3]={0:3}"},
      {"19", "S0:[1..3]; R0:[1..3]{^999,2} !bnf; Q[1..3]={0:2}"},
      {"20", "S0:[1..3]; R0:[1..3]{2,2}; Q[1..3]={0:2}"},
      {"20b", "S0:[1..3]; R0:[1..3]{2}; R0:[1..3]{2} !bnf; Q[1..3]={0:2}"},
      {"23",
       "S0,1:[1..3]; S0,1:[1,2]+[4]; S2:[1,2]; R0:[1,2]{0,1}; Q[1,2,4]={1:3 2:2};"
       "Q[1..3]={1:3 2:2}"},
      {"24", "S0,1:[1..5]; R0:[1..5]{1}; S0:[1..5]+[6] !any; Q[1..6]={0:1 1:5}"},
      {"25",
       "S0,1:[1..3]; S0,1:[1,2]+[4]; R0:[1..3]{0}; Q[1,2,4]={1:3}; S0:[1];"
       "Q[1,2,4]={0:1|3 1:3}; S0:[1]+[2] !any; Q[1,2,4]={0:3 1:3}"},
      {"36", "S0:[1..6]; S1:[1..4]; R1:[1..4]{2}; Q[1..6]={0:6 1:2}"},
      {"37",
       "S0,1:[1..6]; R1:[1..6]{2}; R1:[1..6]{4} !any; Q[1..6]={0:6 1:2};"
       "S1:[1,2]+[3..6]; Q[1..6]={0:6 1:6}; n=12"},
      {"38", "S0:[1..4]; R0:[1..4]{3,2,1,0}; Q[1..4]={}; D; clean"},
      {"39", "S0:[1..4]; R0:[1..4]{0..3}; Q[1..4]={}; D; clean"},
      {"42", "S0,1:[1..3]; R0:[1..3]{0..2}; Q[1..3]={1:3}"},
      {"46", "S0:[1..4]; R0:[1..4]{1}; S0:[1]+[20]; Q[1,20]={0:2}; Q[1..4]={0:1}"},
      {"47", "S0:[1..4]; R0:[1..4]{0}; R0:[1..4]{3,2,1} !any; Q[1..4]={}; clean"},
      {"54",
       "S0:[1/1,2/2,3/3]; S0:^2+[4/4,5/5]; R0:[]{^3,^5}; Q[1..3]={0:2};"
       "Q[1,2,4,5]={0:3}; n=3"},
      {"55",
       "S0,1,2:[1..5]; R0:[1..5]{4,2,3}; R1:[1..5]{2,3,4}; R2:[1..5]{3,4,2};"
       "Q[1..5]={0:2 1:2 2:2}; n=6"},
      {"56",
       "S0:[1..3]; S0:[1,2]+[9]; R0:[1..3]{0}; Q[1,2,9]={}; S0:[1..3]; Q[1..3]={0:3};"
       "Q[1,2,9]={0:2|3}"},
      {"59", "S0:[1..3]; S1:[1,2]; R1:[1..3]{2} !bnf; Q[1..3]={0:3 1:2}"},
      {"60",
       "S1:[1..4]; S2:[1,2,9]; R1:[1..4]{0}; R2:[1,2,9]{0}; R1:[1..4]{3,2,1} !any;"
       "R2:[1,2,9]{2,1} !any; clean"},
      {"62", "S0:[1..3]; R0:[1..3]{2}; S0:[1..3]+[4] !pnf; Q[1..4]={0:2}"},
      {"66",
       "S0,1:[1..6]; S1:[1..4]+[9]; R1:[1..6]{1}; Q[1,2,3,4,9]={0:4 1:1};"
       "Q[1..6]={0:6 1:1}"},
      {"67", "S0,1:[1..3]; S1:[1..3]+[4]; R1:[1..4]{3,2,1,0}; S0:[1..3]+[4]; Q[1..4]={0:4}; n=4"},
      {"81", "S0,1:[1..6]; R1:[1..6]{3}; Q[1..6]={0:6 1:3}; S1:[1..3]+[4..6]; Q[1..6]={0:6 1:6}"},
      {"84",
       "S0:[1..3]; S0:[1..3]+[7]; S1:[1,2]; R0:[1..3]{0..2}; Q[1,2,3,7]={1:2};"
       "S1:[1,2]+[3,7]; Q[1,2,3,7]={1:4}"},
      {"85",
       "S0:[1..3]; S0:[1..3]+[7]; S0:[1..3]+[8]; S1:[1,2,3,7]; R0:[1..3]{0..2};"
       "Q[1,2,3,7]={1:4}; S0:[1..3]; Q[1,2,3,7]={0:3|4 1:4}; Q[1,2,3,8]={0:3|4 1:3}"},
      {"91", "R0:[]{}; S0:[1]; R0:[]{}; Q[1]={0:1}"},
      {"97", "S0,0.1:[1..3]; R0.1:[1..3]{0}; Q[1..3]={0:3}; R0:[1..3]{1}; Q[1..3]={0:1}"},
      {"99", "S0,1:[1..3]; R0:[1..3]{2}; S1:[1..3]+[4]; Q[1..4]={0:2 1:4}"},
      {"100", "S0:[1..5]; R0:[1..5]{3}; S0:[1..3]+[30,31]; Q[1,2,3,30,31]={0:5}; Q[1..5]={0:3}"},
      {"105",
       "S0:[1..3]; S0:[1..3]+[4]; R0:[1..3]{2}; S1:[1..3]; Q[1..4]={0:2 1:3};"
       "S1:[1..3]+[4]; Q[1..4]={0:2 1:4}; S0:[1,2]+[3]; Q[1..4]={0:3|4 1:4}"},
      {"bug 52",
       "S0,1,2:[1/11,2/12]; S3:[1/41,2/42]; R0:[]{^12}; Q[1,2]={0:1 1:2 2:2 3:2};"
       "R3:[]{^12} !bnf; Q[1,2]={0:1 1:2 2:2 3:2}; R1:[]{^11,^12,^11,^12};"
       "Q[1,2]={0:1 2:2 3:2}; R0:[]{^11}; R2,3:[]{^11,^12,^41,^42} !bnf; clean"},
      {"bug 53",
       "S0,1:[1..8]; R0:[1..8]{3}; Q[1..8]={0:3 1:8}; S0:[1..3]+[4]; Q[1..8]={0:8 1:8};"
       "R0:[1..8]{0}; Q[1..8]={1:8}; S0:[1]; Q[1..8]={0:8 1:8}; R0:[1..8]{7};"
       "Q[1..8]={0:7 1:8}"},
      {"bug 56",
       "S0:[1/11,2/12,3/13,4/14]; R0:[]{^12}; R0:[]{^14}; S0:^11+[2/12]; S0:^12+[4/14];"
       "Q[1..4]={0:3}; Q[1,2,4]={0:3}; R0:[]{^14}; Q[1..4]={0:3}; Q[1,2,4]={0:2}; D;"
       "Q[1..4]={0:3}"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, ClearsRanksAndWorkers) {
  static constexpr Row kRows[] = {
      {"21", "S0,0.1:[1..3]; C0; Q[1..3]={0.1:3}"},
      {"21b", "C9"},
      {"21c", "S0:[1..3]; C0; S0:[1..3]+[4] !pnf; Q[1..4]={}"},
      {"22", "S0,0.1:[1..3]; S1:[1,2]; RW0; Q[1..3]={1:2}"},
      {"22b", "S0,0.1:[1..3]; RR0.1; Q[1..3]={0:3}"},
      {"41", "S0:[1..3]; C0; S0:[1,2]; Q[1..3]={0:2}"},
      {"48", "S0:[1..3]; RW0; S0:[1..3]+[4] !pnf; S0:[1,2]; Q[1..3]={0:2}"},
      {"57", "S0:[1]; C0; C0; clean"},
      {"58", "S0:[1..3]; C0; S0:[1..3]; Q[1..3]={0:3}; n=3"},
      {"61", "S0:[1..3]; RR0; R0:[1..3]{2} !bnf; Q[1..3]={}"},
      {"70", "S0:[1..3]; RW0; S5:[7,8]; Q[1..3]={}; Q[7,8]={5:2}"},
      {"71", "S0:[1..6]; S1:[1..3]; RW1; S9:[50]; Q[1..6]={0:6}"},
      {"72", "S0:[1..3]; C0; S0:[4..6]; R0:[1..3]{2} !bnf; Q[4..6]={0:3}"},
      {"82", "S0:[1..6]; S1:[1..3]; RW0; Q[1..6]={1:3}; S1:[1..3]+[4]; Q[1..4]={1:4}; n=4"},
      {"83", "S0:[1..6]; S1:[1..3]; RW0; S1:[1..3]+[40]; Q[1,2,3,40]={1:4}; Q[1..6]={1:3}; n=4"},
      {"95",
       "S0,1,2:[1..3]; S0.1,1.1,2.1:[1..4]; S0.2,1.2,2.2:[1..5]; S0.3,1.3,2.3:[1..6]; RW1;"
       "RR2.3; Q[1..6]={0:3 0.1:4 0.2:5 0.3:6 2:3 2.1:4 2.2:5}; n=30"},
      {"98", "S0:[1..6]; S1:[1..3]; C1; Q[1..6]={0:6}; S1:[1,2]; Q[1..6]={0:6 1:2}"},
      {"T3", "S0:[1..3]; RW0; S0:[7]; Q[1..3]={}; Q[7]={0:1}"},
      {"T9", "S0:[1..3]; C0; S0:[4]; Q[1..3]={}; Q[4]={0:1}"},
      {"unknown rank", "RR5 !bnf; RW5 !bnf"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, TakesNamesAsTheyCome) {
  static constexpr Row kRows[] = {
      {"26",
       "S0:[1/100,2/200]; S1:[1/100,2/201]; Q[1,2]={0:2 1:2}; S1:^201+[3/301];"
       "Q[1..3]={0:2 1:3}; R1:[]{^201}; Q[1..3]={0:2 1:1}"},
      {"26 own names",
       "V; S0,1,2:[1..4]; R1:[1..4]{2}; Q[1..4]={0:4 1:2 2:4}; R0:[1..4]{3};"
       "S1:[1,2]+[3]; Q[1..4]={0:3 1:4 2:4}; D; Q[1..4]={0:3 1:4 2:4}; RW0,1,2;"
       "clean"},
      {"27", "S0:[1/100,2/100,3/300]; Q[1..3]={0:3}; R0:[]{^100}; Q[1..3]={0:1}; C0; clean"},
      {"88", "S0:[1/100]; S1:[2/100]; Q[1]={0:1}; Q[2]={1:1}; R1:[]{^100}; Q[1]={0:1}; Q[2]={}"},
      {"89",
       "S0:[1/100]; S0:[2/100]; Q[1]={0:1}; Q[2]={0:1}; R0:[]{^100}; Q[2]={};"
       "R0:[]{^100} !any; Q[1]={}; clean"},
      {"a block gets a new name",
       "S0:[1/100,2/200]; S0:[1/101]!dup; R0:[]{^100} !bnf;"
       "Q[1,2]={0:2}; S0:^101+[3/300]; Q[1,3]={0:2}; R0:[]{^101};"
       "Q[1,2]={}"},
      {"the last stored goes first",
       "S0:[1/100]; S0:[2/100]; S0:[1/100] !dup; R0:[]{^100}; Q[1]={};"
       "Q[2]={0:1}"},
      {"also in a grown table",
       "S0:[1/100]; S0:[2/100]; S0:[10..99]; R0:[]{^100}; Q[1]={0:1};"
       "Q[2]={}"},
      {"L7", "S0@host:[1/1,7/10]; S1@host:[2/2,7/10]; Q[1,7]={0:0/2}; Q[2,7]={1:0/2}"},
      {"L8", "S0@host:[1/1,7/10]; S1@host:[1/1,7/11,8/12]; Q[1,7,8]={0:0/2 1:0/3}"},
      {"L9", "S0@host:[1/1,2/2]; S0@host:[3/3,9/2]; Q[1,2]={0:0/2}; Q[3,9]={0:0/2}"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, WalksTheTiersOnce) {
  static constexpr Row kRows[] = {
      {"L1", "S0:[1..3]; S0@host:[1..3]+[4,5]; Q[1..5]={0:3/2}"},
      {"L1 host first", "S0@host:[1..3]+[4,5] !pnf; Q[1..5]={}; S0:[1..3]; Q[1..5]={0:3/2}"},
      {"L2", "S0@host:[1,2]; Q[1..3]={0:0/2}"},
      {"L3", "S0:[1..3]; S0@host:[1,2]; Q[1..5]={0:3}"},
      {"L4",
       "S0:[1..3]; S0@host:[1..3]+[4]; S0@disk:[1..4]+[5]; S0@ext:[1..5]+[6];"
       "Q[1..6]={0:3/1/1/1}; D; Q[1..6]={0:3/1/1/1}"},
      {"L5",
       "S0:[1..3]; S0@host:[1..3]+[4]; S0@disk:[1..4]+[5]; S0@host:[1..5]+[6];"
       "Q[1..6]={0:3/1/1}"},
      {"L6", "S0:[1,2]; S1:[1..4]; S0,1@host:[1,2]+[3..6]; Q[1..6]={0:2/4 1:4/2}"},
      {"L10, bug 31", "S0,1@host:[1..3]; R0@host:[1..3]{^99,0,^98,1,2} !bnf; Q[1..3]={1:0/3}"},
      {"L11", "S0:[1..3]; S0@host:[1..5]; R0@host:[1..5]{2}; Q[1..5]={0:3/2}"},
      {"L12", "S0:[1]; S0@host:[1]+[2]; Q[]={}; Q[1]={0:1}"},
      {"T8", "S0:[1]; S0@host:[1,2]; S0@disk:[3]; C0; clean"},
      {"a tier of its own",
       "S0:[1,2]; S0@host:[1,2]; Q[1,2]={0:2}; R0:[1,2]{0,1}; Q[1,2]={0:0/2};"
       "R0@host:[1,2]{1}; Q[1,2]={0:0/1}; R0@host:[1,2]{0}; Q[1,2]={}; clean"},
      {"bug 32", "S0:[1]; S0@host:[1]+[2]; Q[1,2]={0:1/1}"},
      {"removed in the wrong tier", "S0:[1]; R0@host:[1]{0} !bnf; Q[1]={0:1}"},
      {"skips a tier", "S0:[1]; S0@ext:[1]+[2]; Q[1,2]={0:1/0/0/1}"},
      {"starts in the nearest", "S0@disk:[1,2]; S0@host:[1]; Q[1,2]={0:0/1/1}"},
      {"device behind host", "S0@host:[1]; S0:[1]+[2]; Q[1,2]={0:0/1}; D; Q[1,2]={0:0/1}; n=2"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, PlacesBlocksByName) {
  static constexpr Row kRows[] = {
      {"after the removal", "S0:[1,2]; R0:[1,2]{0,1}; H0@host:[1,2]{0,1}; Q[1,2]={0:0/2}"},
      {"while held", "S0:[1,2]; H0@host:[1,2]{0,1}; R0:[1,2]{0,1}; Q[1,2]={0:0/2}"},
      {"twice", "S0:[1]; H0@host:[1]{0}; H0@host:[1]{0} !dup; n=2"},
      {"content later",
       "H0@host:[1,2]{0,1} !pnf; Q[1,2]={}; S0:[1,2]; Q[1,2]={0:2};"
       "R0:[1,2]{0,1}; Q[1,2]={0:0/2}"},
      {"removed while waiting",
       "H0@host:[1]{0} !pnf; R0@host:[1]{0}; S0:[1]; R0:[1]{0}; Q[1]={};"
       "clean"},
      {"cleared while waiting", "H0@host:[1]{0} !pnf; C0; S0:[1]; R0:[1]{0}; Q[1]={}; clean"},
      {"a clear forgets names", "S0:[1]; R0:[1]{0}; C0; H0@host:[1]{0} !pnf; Q[1]={}"},
      {"names are the rank's own", "S1:[1]; H0@host:[1]{0} !pnf; Q[1]={1:1}"},
      {"joins a waiting block",
       "S0:[1]+[2] !pnf; H0@host:[1,2]{1} !pnf; S0:[1]; Q[1,2]={0:2};"
       "R0:[1,2]{1}; Q[1,2]={0:1/1}"},
      {"content under a waiting parent",
       "H0@host:[1,2]{1} !pnf; S0:[1]+[2] !pnf; S0:[1];"
       "Q[1,2]={0:2}; R0:[1,2]{1}; Q[1,2]={0:1/1}"},
  };
  this->CheckAll(kRows);
}

// The rule of PrefixIndex, row L14 for one index.
TYPED_TEST(IndexContract, ABlockIsEligibleWhileEveryStoreOfItWas) {
  static constexpr Row kRows[] = {
      {"as told", "E0:[1,2]; S0:[1,2]+[3]; e=2; D; e=2"},
      {"one that is not clears it", "E0:[1..3]; S0:[1,2] !dup; e=1; E0:[1..3] !dup; e=1"},
      {"in another tier too", "E0:[1..3]; S0@host:[1]; e=2; E0@host:[1..3]; e=4; n=6"},
      {"nor does a later one make it", "S0:[1]; E0:[1] !dup; E0@host:[1]; e=0; D; e=0"},
      {"the last removal forgets", "E0:[1]; R0:[1]{0}; S0@host:[1]; e=0"},
      {"also that it was not", "S0:[1]; R0:[1]{0}; E0:[1]; e=1"},
      {"no other removal does",
       "S0:[1]; E0@host:[1]; R0:[1]{0}; e=0; E0@disk:[1]; R0@host:[1]{0}; e=0; R0@disk:[1]{0}; "
       "clean"},
      {"of a stretch some were held",
       "S0:[1..6]; R0:[1..6]{2,3}; E0:[1..6]; e=2; R0:[1..6]{0,5}; E0:[1..6]; e=4; n=6"},
      {"a clear forgets", "S0:[1..3]; C0; E0:[1..3]; e=3"},
      {"a rank's own", "E0,1:[1..3]; S1:[1,2] !dup; e=4; R1:[1..3]{0..2}; E1:[1..3]; e=6"},
      {"by another name too", "E0:[1/5]; S0:[1/6] !dup; e=0; E0:[1/7] !dup; e=0"},
      {"by name only: as it was", "E0:[1]; S0:[2]; H0@host:[1]{0}; H0@host:[2]{0}; e=2; n=4"},
      {"... also after the removal", "E0:[1]; R0:[1]{0}; H0@host:[1]{0}; e=1"},
      {"... or it is told to be", "S0:[1,2]; HE0:[1,2]{1} !dup; e=1; HE0@host:[1,2]{0}; e=3"},
      {"waits", "E0:^9+[1/1] !pnf; S0:[9/9]; e=1"},
      {"waits, once not", "E0:^9+[1/1] !pnf; S0@host:^9+[1/1] !pnf; S0:[9/9]; e=0; n=3"},
      {"waits while held",
       "S0:[1,2]; R0:[1,2]{0}; E0@host:[1]+[2] !pnf; R0:[1,2]{1}; S0:[1]; e=0; n=2"},
      {"waits while held, once not",
       "E0:[1,2]; R0:[1,2]{0}; S0@host:[1]+[2] !pnf; R0@host:[1,2]{1}; S0:[1]; e=0; n=2"},
      {"waits by name", "H0@host:[]{^1} !pnf; E0:[1/1]; e=2"},
      {"waits with another content", "S0:^9+[1/1] !pnf; E0:^9+[2/1] !pnf; S0:[9/9]; n=3; e=1"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, KeepsOrphansUntilTheirParentComes) {
  static constexpr Row kRows[] = {
      {"bug 46",
       "S0:[1,2]+[3] !pnf; S0:[1..3]+[4] !pnf; Q[3]={}; Q[3,4]={}; R0:[1..3]{2};"
       "S0:[1,2]; Q[1..4]={0:2}; S0:[1,2]+[3]; Q[1..4]={0:4}"},
      {"a chain joins", "S0:[1,2]+[3..6] !pnf; Q[1..6]={}; n=0; S0:[1,2]; Q[1..6]={0:6}; n=6"},
      {"reversed",
       "S0:[1..4]+[5] !pnf; S0:[1..3]+[4] !pnf; S0:[1,2]+[3] !pnf; S0:[1]+[2] !pnf;"
       "S0:[1]; Q[1..5]={0:5}"},
      {"many children", "S0:[1]+[2] !pnf; S0:[1]+[3] !pnf; S0:[1]; Q[1,2]={0:2}; Q[1,3]={0:2}"},
      {"in two tiers",
       "S0:[1]+[2] !pnf; S0@host:[1]+[2] !pnf; R0:[1,2]{1}; S0:[1];"
       "Q[1,2]={0:1/1}"},
      {"not another rank's parent", "S0:[1]+[2] !pnf; S1:[1]; Q[1,2]={1:1}"},
      {"cleared", "S0:[1]+[2] !pnf; C0; S0:[1]; Q[1,2]={0:1}"},
      {"rank removed", "S0:[1]+[2] !pnf; RR0; S0:[1]; Q[1,2]={0:1}"},
      {"not dumped", "S0:[1]; S0:[2]+[3] !pnf; D; S0:[2]; Q[2,3]={0:1}"},
      // Rows 27, 89 and L9 for blocks that wait: one name, several blocks.
      {"one name, placed and waiting",
       "S0@host:^999+[50/5] !pnf; S0:[7/5]; n=1; R0:[]{^5}; Q[7]={}; S0:[9/999]; Q[9,50]={0:1/1}"},
      {"one name, two parents",
       "S0:^998+[50/5] !pnf; S0@host:^999+[60/5] !pnf; S0:[9/999]; Q[9,60]={0:1/1}; n=2;"
       "S0:[8/998]; Q[8,50]={0:2}; n=4; R0@host:[]{^5}; Q[9,60]={0:1}; Q[8,50]={0:2}"},
      {"one name, two contents",
       "S0:^9+[50/5] !pnf; S0:^9+[60/5] !pnf; S0:[9/9]; Q[9,50]={0:2}; Q[9,60]={0:2};"
       "R0:[]{^5}; Q[9,60]={0:1}; Q[9,50]={0:2}; R0:[]{^5}; n=1"},
      {"one name, one content, two parents",
       "S0:^8+[50/5] !pnf; S0:^9+[50/5] !pnf; S0:[8/8]; Q[8,50]={0:2}; S0:[9/9]; Q[9,50]={0:2}"},
      {"one name, the newest that waits goes first",
       "S0:^8+[50/5] !pnf; S0:^9+[60/5] !pnf; R0:[]{^5}; S0:[9/9]; Q[9,60]={0:1}; S0:[8/8];"
       "Q[8,50]={0:2}; R0:[]{^5}; n=2"},
      {"one name, a tier by name is the newest's",
       "S0:^8+[50/5] !pnf; S0:^9+[60/5] !pnf; H0@host:[]{^5} !pnf; S0:[8/8]; S0:[9/9]; n=5;"
       "R0:[]{^5,^5}; Q[8,50]={0:1}; Q[9,60]={0:1/1}"},
      {"one name, a tier by name is the first content's",
       "H0@host:[]{^5} !pnf; S0:^8+[50/5] !pnf; S0:^9+[60/5] !pnf; S0:[9/9]; S0:[8/8]; n=5;"
       "R0:[]{^5,^5}; Q[9,60]={0:1}; Q[8,50]={0:1/1}"},
  };
  this->CheckAll(kRows);
}

TYPED_TEST(IndexContract, DumpRestoresTheAnswers) {
  static constexpr Row kRows[] = {
      {"43",
       "S0:[1..5]; S1:[1..3]; S2:[1,2,3,9]; D; Q[1..5]={0:5 1:3 2:3}; Q[1,2,3,9]={0:3 1:3 2:4};"
       "n=12"},
      {"93",
       "S0:[1..4]; S0:[1,2]+[8]; D; R0:[1..4]{0..3}; R0:[1,2,8]{2}; D; clean;"
       "S0:[1..4]; S0:[1,2]+[8]; D; R0:[1..4]{0..3}; R0:[1,2,8]{2}; clean"},
      {"94",
       "E0:[1..3]; S0:[1..3]+[4]; E1:[1,2]; S0@host:[1..4]+[5]; D; D;"
       "Q[1..5]={0:4/1 1:2}"},
      {"behind a hole", "S0:[1..4]; R0:[1..4]{1}; D; Q[1..4]={0:1}; n=1"},
  };
  this->CheckAll(kRows);
}

// 78 to 80: each rank holds another length of one chain.
TYPED_TEST(IndexContract, TellsManyLengthsOfOneChainApart) {
  std::string start = "S100:[1..20];";
  std::string each;
  for (int k = 1; k <= 19; ++k) {
    start += fmt::format("S{0}:[1..{0}];", k);
    each += fmt::format("{0}:{0} ", k);
  }
  this->Check("78", fmt::format("{} Q[1..20]={{100:20 {}}}", start, each));
  this->Check("79", fmt::format("{} RW100; Q[1..20]={{{}}}; n=190", start, each));

  std::string branches;
  std::string behind_ten = "100:10 ";
  for (int k = 1; k <= 19; ++k) {
    branches += fmt::format("S{0}:[1..{0}]+[{1}];", k, 1000 + k);
    behind_ten += fmt::format("{}:{} ", k, k == 10 ? 11 : std::min(k, 10));
  }
  this->Check("80", fmt::format("{} {} Q[1..10,1010]={{{}}}", start, branches, behind_ten));
}

// Row 73.
TYPED_TEST(IndexContract, HoldsLongChains) {
  for (const std::size_t length :
       {std::size_t{300}, std::size_t{1'300}, std::size_t{20'000}, std::size_t{(1u << 18) + 10}}) {
    TypeParam index{IndexOptions{}};
    const RankSlot slot = *index.AddRank(Rank{WorkerId{7}, 0});
    std::vector<PlacedBlock> blocks;
    std::vector<BlockHash> query;
    for (std::size_t i = 0; i < length; ++i) {
      blocks.push_back({EngineHash{i + 1}, BlockHash{i * 3}});
      query.push_back(blocks.back().local);
    }
    PlacementEvent event;
    for (std::size_t begin = 0; begin < length; begin += 1'000) {
      event.blocks = std::span(blocks).subspan(begin, std::min<std::size_t>(1'000, length - begin));
      ASSERT_EQ(index.Apply(slot, event).status, ApplyStatus::kOk);
      event.parent = event.blocks.back().engine;
    }
    OverlapScores scores;
    index.Match(query, {}, scores);
    EXPECT_EQ(scores.at(slot).device(), length);
    EXPECT_EQ(scores.at(slot).last, blocks.back().engine);
    index.RemoveRank(Rank{WorkerId{7}, 0});
    EXPECT_EQ(index.Stats().nodes + index.Stats().idle_nodes, 0u);
  }
}

// Row 90.
TYPED_TEST(IndexContract, ALongQueryEndsWhereNothingIsHeld) {
  TypeParam index{IndexOptions{}};
  const auto ops = script::Parse("S0:[1..3]; Q[1..3]");
  const RankSlot slot = *index.AddRank(ops[0].rank);
  index.Apply(slot, ops[0].Event());
  std::vector<BlockHash> query = ops[1].query;
  query.resize(100'000, BlockHash{7});
  OverlapScores scores;
  index.Match(query, {.device_holders = true}, scores);
  EXPECT_EQ(scores.at(slot).depth(), 3u);
  EXPECT_EQ(scores.device_holders().size(), 3u);
}

// 76, with slots beyond one word; and the limit.
TYPED_TEST(IndexContract, ServesHundredsOfRanks) {
  std::string text;
  std::string expected;
  for (int rank = 0; rank < 300; ++rank) {
    const int length = rank % 3 == 0 ? 5 : 3;
    text += fmt::format("S{}:[1..{}];", rank, length);
    expected += fmt::format("{}:{} ", rank, length);
  }
  this->Check("76", fmt::format("{} Q[1..5]={{{}}}; D; Q[1..5]={{{}}}", text, expected, expected));
}

TYPED_TEST(IndexContract, RefusesRanksBeyondTheLimit) {
  IndexOptions options;
  options.ranks_max = 2;
  TypeParam index(options);
  const Rank a{WorkerId{1}, 0};
  const Rank b{WorkerId{1}, 1};
  const Rank c{WorkerId{2}, 0};
  EXPECT_EQ(*index.AddRank(a), RankSlot{0});
  EXPECT_EQ(*index.AddRank(b), RankSlot{1});
  EXPECT_EQ(*index.AddRank(a), RankSlot{0}) << "known ranks keep their slot";
  ASSERT_FALSE(index.AddRank(c));
  EXPECT_EQ(index.AddRank(c).error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(index.FindRank(a), RankSlot{0});
  EXPECT_EQ(index.FindRank(b), RankSlot{1});
  EXPECT_EQ(index.FindRank(c), std::nullopt) << "looking takes no slot";
  EXPECT_TRUE(index.RemoveRank(a));
  EXPECT_EQ(index.FindRank(a), std::nullopt);
  EXPECT_EQ(*index.AddRank(c), RankSlot{0}) << "the lowest free slot";
  EXPECT_EQ(index.Stats().ranks, 2u);
  EXPECT_EQ(index.StatsOf(RankSlot{0}).rank, c);
  EXPECT_EQ(index.StatsOf(RankSlot{9}).blocks[0], 0u);
}

TYPED_TEST(IndexContract, CountsWhatItHolds) {
  script::Player player(this->Make());
  for (const script::Op& op :
       script::Parse("S0:[1..3]; S1:[1..2]; S0@host:[1]; S0:[8]+[9,10]; H1@disk:[5]{0}; R1:[1]{0}"))
    player.Update(op);
  const IndexStats stats = player.index().Stats();
  EXPECT_EQ(stats.ranks, 2u);
  EXPECT_EQ(stats.nodes, kShares<TypeParam> ? 3u : 4u);
  EXPECT_EQ(stats.memberships, 5u);
  EXPECT_EQ(stats.pending_blocks, 3u);
  const RankStats rank = player.index().StatsOf(player.slots().at(Rank{WorkerId{0}, 0}));
  EXPECT_EQ(rank.blocks, (std::array<std::uint64_t, kTierCount>{3, 1, 0, 0}));
  EXPECT_EQ(rank.pending_blocks, 2u);
}

TYPED_TEST(IndexContract, CountsWaitingBlocksAndNameConflicts) {
  script::Player player(this->Make());
  const auto ops = script::Parse("S0:^9+[1,2,3]; S0:[1/1]; S0:[2/1]");
  const RankSlot slot = *player.index().AddRank(ops[0].rank);
  EXPECT_EQ(player.index().Apply(slot, ops[0].Event()).waiting_blocks, 3u);
  EXPECT_EQ(player.index().Apply(slot, ops[1].Event()).waiting_blocks, 0u);
  EXPECT_EQ(player.index().Stats().name_conflicts, 0u);
  player.index().Apply(slot, ops[2].Event());
  EXPECT_EQ(player.index().Stats().name_conflicts, 1u);
}

TYPED_TEST(IndexContract, DropsTheOldestOfTooManyPendingBlocks) {
  IndexOptions options;
  options.pending_blocks_max = 2;
  this->Check("oldest",
              "S0:[1]+[2] !pnf; S0:[1]+[3] !pnf; S0:[1]+[4] !full; S0:[1]; Q[1,2]={0:1};"
              "Q[1,3]={0:2}; Q[1,4]={0:2}",
              options);
  this->Check("others keep theirs",
              "S1:[1]+[2] !pnf; S0:[1]+[2..9] !full; S0,1:[1];"
              "Q[1,2]={0:1 1:2}",
              options);
  options.pending_blocks_max = 0;
  this->Check("none", "S0:[1]+[2] !full; H0@host:[7]{0} !pnf; S0:[1]; Q[1,2]={0:1}", options);

  TypeParam index(options);
  const auto op = script::Parse("S0:^9+[1,2,3]")[0];
  EXPECT_EQ(index.Apply(*index.AddRank(op.rank), op.Event()).dropped_blocks, 3u);
  EXPECT_EQ(index.Stats().pending_dropped, 3u);
  EXPECT_EQ(index.Stats().pending_blocks, 0u);
}

TYPED_TEST(IndexContract, ForgetsTheOldestNames) {
  IndexOptions options;
  options.remembered_names_max = 2;
  this->Check("oldest",
              "S0:[1..3]; R0:[1..3]{0,1,2}; H0@host:[1..3]{0} !pnf; H0@host:[1..3]{1,2}; n=2",
              options);
  this->Check("recalled names do not count",
              "S0:[1..3]; R0:[1..3]{0,1}; S0:[1]; R0:[1..3]{2};"
              "H0@host:[1..3]{1,2}; n=3",
              options);
  options.remembered_names_max = 0;
  this->Check("none", "S0:[1..3]; R0:[1..3]{2,1,0}; clean; H0@host:[1..3]{0} !pnf", options);
}

TYPED_TEST(IndexContract, CountsDeviceHoldersByDepth) {
  script::Player player(this->Make());
  std::vector<BlockHash> query;
  for (const script::Op& op : script::Parse("S0,1,2:[1,2]; S3:[1/41,2/42]; S0:[1,2]+[3]; "
                                            "S1@host:[1,2]+[3]; R0:[1..3]{2}; Q[1..3]")) {
    if (op.updates()) player.Update(op);
    query = op.query;
  }
  OverlapScores scores;
  player.index().Match(query, {.device_holders = true}, scores);
  EXPECT_EQ(std::vector(scores.device_holders().begin(), scores.device_holders().end()),
            (std::vector<std::uint32_t>{4, 4}));
  const RankSlot one = player.slots().at(Rank{WorkerId{1}, 0});
  EXPECT_EQ(scores.at(one).depth(), 3u);
  player.index().Match(query, {.device_only = true}, scores);
  EXPECT_EQ(scores.at(one).depth(), 2u);
  EXPECT_TRUE(scores.device_holders().empty());
}

TYPED_TEST(IndexContract, FindsBlocksBySequenceHashes) {
  script::Player player(this->Make());
  for (const script::Op& op : script::Parse(
           "S0:[1..6]; S1:[1..3]; S1:[1..3]+[4..6]; S0:[1..3]+[9]; S1:[1..6]+[7]; S2:[1,2,9];"
           "S2@host:[5]; S0:[8]; R0:[8]{0}"))
    player.Update(op);
  const struct {
    const char* query;
    std::size_t known;
  } rows[] = {{"Q[]", 0},        {"Q[1]", 1},     {"Q[1..6]", 6},    {"Q[1..9]", 7},
              {"Q[1..3,9]", 4},  {"Q[1,2,9]", 3}, {"Q[1,2,9,9]", 3}, {"Q[1,2,8]", 2},
              {"Q[2]", 0},       {"Q[5]", 1},     {"Q[5,1]", 1},     {"Q[1..4,9]", 4},
              {"Q[1..5,5,7]", 5}};
  std::vector<SequenceHash> sequence;
  std::vector<BlockHash> found{BlockHash{77}};
  for (const auto& row : rows) {
    const std::vector<BlockHash> query = script::Parse(row.query)[0].query;
    hashing::ChainHashes(query, sequence);
    player.index().FindBlocks(sequence, found);
    ASSERT_EQ(found.size(), row.known) << row.query;
    EXPECT_TRUE(std::equal(found.begin(), found.end(), query.begin())) << row.query;
  }
  // A name that belongs to another chain leads nowhere.
  hashing::ChainHashes(script::Parse("Q[1..6]")[0].query, sequence);
  sequence.erase(sequence.begin());
  player.index().FindBlocks(sequence, found);
  EXPECT_TRUE(found.empty());
}

// A reused answer must not show ranks of an earlier query.
TYPED_TEST(IndexContract, OverwritesAReusedAnswer) {
  TypeParam index{IndexOptions{}};
  const auto ops = script::Parse("S0:[1,2]; S1:[7]; Q[1,2]; Q[7]; Q[5]");
  const RankSlot zero = *index.AddRank(ops[0].rank);
  const RankSlot one = *index.AddRank(ops[1].rank);
  index.Apply(zero, ops[0].Event());
  index.Apply(one, ops[1].Event());
  OverlapScores scores;
  index.Match(ops[2].query, {}, scores);
  EXPECT_EQ(scores.at(zero).depth(), 2u);
  index.Match(ops[3].query, {}, scores);
  EXPECT_EQ(scores.at(zero).depth(), 0u);
  EXPECT_EQ(scores.at(one).depth(), 1u);
  EXPECT_EQ(scores.scored().size(), 1u);
  index.Match(ops[4].query, {}, scores);
  EXPECT_TRUE(scores.scored().empty());
}

// Nor may it name ranks of another index, or who had the slot before.
TYPED_TEST(IndexContract, NamesTheRanksOfTheIndexAsked) {
  TypeParam first{IndexOptions{}};
  TypeParam second{IndexOptions{}};
  const auto ops = script::Parse("S1:[1,2]; S2:[1,2]; S3:[1,2]; Q[1,2]");
  const auto add = [&ops](TypeParam& index, std::size_t op) {
    const RankSlot slot = *index.AddRank(ops[op].rank);
    index.Apply(slot, ops[op].Event());
    return slot;
  };
  OverlapScores scores;
  const auto rank_of = [&](const TypeParam& index, RankSlot slot) {
    index.Match(ops[3].query, {}, scores);
    return scores.at(slot).rank;
  };
  const RankSlot slot = add(first, 0);
  ASSERT_EQ(add(second, 1), slot);
  EXPECT_EQ(rank_of(first, slot), ops[0].rank);
  EXPECT_EQ(rank_of(second, slot), ops[1].rank);
  EXPECT_EQ(rank_of(first, slot), ops[0].rank);
  first.RemoveRank(ops[0].rank);
  ASSERT_EQ(add(first, 2), slot);
  EXPECT_EQ(rank_of(first, slot), ops[2].rank);
}

TYPED_TEST(IndexContract, AnswersManyQueriesAtOnce) {
  script::Player player(this->Make());
  for (const script::Op& op :
       script::Parse("S0,1:[1..40]; S2:[1..20]; S2@host:[1..20]+[21..30]; S3:[1..4]+[50..60];"
                     "S4:[1/91,2/92,3/93]; S5:[7]; R1:[1..40]{3}; S6@disk:[1..9]"))
    player.Update(op);
  std::vector<std::vector<BlockHash>> queries;
  for (int i = 0; i < 41; ++i) {
    queries.push_back(script::Parse(i % 3 == 0 ? fmt::format("Q[1..4,50..{}]", 50 + i)
                                               : fmt::format("Q[1..{}]", i + 1))[0]
                          .query);
  }
  const std::vector<std::span<const BlockHash>> spans(queries.begin(), queries.end());
  std::vector<OverlapScores> scores(queries.size());
  player.index().MatchMany(spans, {.device_holders = true}, scores);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    OverlapScores alone;
    player.index().Match(queries[i], {.device_holders = true}, alone);
    ASSERT_EQ(scores[i].scored().size(), alone.scored().size()) << i;
    for (const RankSlot slot : alone.scored()) {
      EXPECT_EQ(scores[i].at(slot).rank, alone.at(slot).rank) << i;
      EXPECT_EQ(scores[i].at(slot).blocks, alone.at(slot).blocks) << i;
      EXPECT_EQ(scores[i].at(slot).last, alone.at(slot).last) << i;
    }
    EXPECT_TRUE(std::equal(scores[i].device_holders().begin(), scores[i].device_holders().end(),
                           alone.device_holders().begin(), alone.device_holders().end()));
  }
  player.index().MatchMany({}, {}, {});
}

// The same slots are other ranks there; neither index may leave its ranks in the other's answer.
TYPED_TEST(IndexContract, IsAskedInTurnWithAnother) {
  script::Player one(this->Make());
  script::Player other(this->Make());
  for (const script::Op& op : script::Parse("S0:[1..3]; S1:[1..2]; S2:[5..6]"))
    one.Update(op);
  for (const script::Op& op : script::Parse("S7:[5..6]; S8:[1..3]; S9:[1..2]"))
    other.Update(op);
  OverlapScores scores;
  const auto ranks = [&scores](const script::Player& player, std::string_view query) {
    player.index().Match(script::Parse(query)[0].query, {}, scores);
    std::set<std::uint64_t> workers;
    for (const RankSlot slot : scores.scored())
      workers.insert(Raw(scores.at(slot).rank.worker));
    return workers;
  };
  using Workers = std::set<std::uint64_t>;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ranks(one, "Q[1..3]"), (Workers{0, 1}));
    EXPECT_EQ(ranks(other, "Q[1..3]"), (Workers{8, 9}));
    EXPECT_EQ(ranks(other, "Q[5..6]"), (Workers{7}));
    EXPECT_EQ(ranks(one, "Q[5..6]"), (Workers{2}));
  }
}

TYPED_TEST(IndexContract, FindsTheBest) {
  script::Player player(this->Make());
  std::string text;
  for (int rank = 0; rank < 200; ++rank)
    text += fmt::format("S{}{}:[1..{}];", rank, rank % 7 ? "" : "@host", rank % 50 + 1);
  for (const script::Op& op : script::Parse(text + "S9@host:[1..10]+[11..60]"))
    player.Update(op);
  const auto query = script::Parse("Q[1..99]")[0].query;
  // Four ranks end at each depth up to 50 but one, which goes on to 60.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> rows = {
      {1, 60}, {2, 50}, {5, 50}, {6, 49}, {199, 1}, {200, 1}, {1'000, 1}};
  for (const auto& [best, shallowest] : rows) {
    OverlapScores scores;
    player.index().Match(query, {.device_holders = true, .best = best}, scores);
    EXPECT_EQ(scores.scored().size(), std::min(best, 200u));
    std::uint32_t least = 99;
    for (const RankSlot slot : scores.scored())
      least = std::min(least, scores.at(slot).depth());
    EXPECT_EQ(least, shallowest) << best;
    EXPECT_EQ(scores.device_holders().size(), 50u);  // of all, not of the best
  }
}

// Whoever restores a dump needs no pool for it, and may read the device part alone.
TYPED_TEST(IndexContract, DumpsParentsFirstAndDeviceFirst) {
  script::Player player(this->Make());
  for (const script::Op& op :
       script::Parse("S0,1:[1..4]; S0@host:[1..4]+[5]; S0@disk:[1..5]+[6]; S1@host:[7]; S1:[7]+[8];"
                     "S0:[1,2]+[9]; S1@host:[1..4]; R0:[1..4]{3}; S0:[1..3]+[4]"))
    player.Update(op);
  IndexOptions options;
  options.pending_blocks_max = 0;
  const script::Player copy = player.Restored(this->Make(options));
  EXPECT_EQ(copy.SortedDump(), player.SortedDump());
  EXPECT_EQ(copy.index().Stats().pending_dropped, 0u);

  std::map<Rank, bool> lower;
  player.index().Dump([&lower](const PlacementEvent& event) {
    lower[event.rank] |= event.tier != Tier::kDevice;
    const bool behind_host = event.blocks[0].local == BlockHash{8};
    EXPECT_TRUE(!lower[event.rank] || event.tier != Tier::kDevice || behind_host);
  });
  EXPECT_TRUE(lower.at(Rank{WorkerId{1}, 0}));
}

// Row 92 and bug 50: what comes and goes leaves nothing behind.
TYPED_TEST(IndexContract, ReturnsToItsSizeAfterChurn) {
  IndexOptions options;
  options.remembered_names_max = 0;
  script::Player player(this->Make(options));
  const auto prefix = script::Parse("S0,1:[1..16]");
  for (const script::Op& op : prefix)
    player.Update(op);
  for (int round = 0; round < 300; ++round) {
    const int at = 1'000 + round * 100;
    const std::string suffix = fmt::format("[1..16,{}..{}]", at, at + 31);
    const char* order = round % 2 ? "{47,46,45,44,43,42,41,40,39,38..38,16..37}" : "{16..47}";
    for (const script::Op& op : script::Parse(fmt::format(
             "S0:{0}; S1:[1..16,{1},{2}]; R1:[1..16,{1},{2}]{{16,17}}; R0:{0}{3}; S0:[1..16]",
             suffix, at, at + 1, order)))
      player.Update(op);
    ASSERT_EQ(player.index().Stats().nodes, kShares<TypeParam> ? 16u : 32u);
    ASSERT_EQ(player.index().Stats().idle_nodes, 0u);
  }
  EXPECT_EQ(player.Query(script::Parse("Q[1..16]")[0].query).size(), 2u);
}

using Products = testing::Types<RunArena, ThreeShards>;
template <typename Index>
class ProductContract : public testing::Test {};
TYPED_TEST_SUITE(ProductContract, Products);

// A copy finds each parent by a name that several blocks have, and keeps which is the newest.
TYPED_TEST(ProductContract, CopiesBlocksOfOneName) {
  static constexpr Row kRows[] = {
      {"a host child of the older",
       "S0:[1/100]; S0@host:^100+[5/500]; S0:[2/100]; D; Q[1,5]={0:1/1}; Q[2,5]={0:1};"
       "R0:[]{^100}; Q[1,5]={0:1/1}; Q[2]={}"},
      {"children of both",
       "S0:[1/100]; S0:^100+[5/500]; S0:^100+[6/600]; S0:[2/100]; S0:^100+[7/700]; S0:^100+[8/800];"
       "D; Q[1,5]={0:2}; Q[1,6]={0:2}; Q[2,7]={0:2}; Q[2,8]={0:2}; Q[1,7]={0:1}; Q[2,5]={0:1};"
       "R0:[]{^100}; Q[2,7]={}; Q[1,6]={0:2}"},
      {"the older stored again",
       "S0:[1/100]; S0:^100+[5/500]; S0:[2/100]; S0:^100+[7/700]; S0:[1/100]!dup; D; Q[2,7]={0:2};"
       "Q[1,5]={0:2}; R0:[]{^100}; Q[1]={}; Q[2,7]={0:2}"},
      {"of parent and grandchild",
       "E0:[1/100,5/500,2/100,6/600]; S0:[3/100]; D; Q[1,5,2,6]={0:4}; e=4; R0:[]{^100};"
       "Q[3]={}; Q[1,5,2,6]={0:4}; R0:[]{^100}; Q[1,5,2,6]={0:2}"},
      {"in two tiers",
       "S0:[1/100]; S0@host:[1/100]; S0:^100+[5/500]; S0@disk:[2/100]; S0@host:^100+[5/500]; D;"
       "Q[1,5]={0:2}; Q[2,5]={0:0/0/1}; n=5; R0@disk:[]{^100}; Q[1,5]={0:2}; n=4"},
      {"a name of the block before is left out", "S0:[1/100,2/100,3/300]; D; Q[1..3]={0:1}"},
  };
  for (const Row& row : kRows) {
    const auto make = [](const IndexOptions& options) -> std::unique_ptr<PrefixIndex> {
      return std::make_unique<TypeParam>(options);
    };
    for (const std::string& failure : script::Run(row.script, make, {}))
      ADD_FAILURE() << "row " << row.id << ": " << failure;
  }
}

// A rank that leaves and comes back meanwhile is dumped once, as one of its lives had it.
TYPED_TEST(ProductContract, DumpsEachRankOnce) {
  script::Player player(std::make_unique<TypeParam>(IndexOptions{}));
  for (const script::Op& op : script::Parse("S1,2,3:[1]; S4:[7]"))
    player.Update(op);
  std::map<Rank, std::set<BlockHash>> dumped;
  player.index().Dump([&](const PlacementEvent& event) {
    if (dumped.empty()) {
      for (const script::Op& op : script::Parse("RR1; RR2; S5,6:[9]; S2,1:[2]; RR4"))
        player.Update(op);
    }
    for (const PlacedBlock& block : event.blocks)
      dumped[event.rank].insert(block.local);
  });
  EXPECT_EQ(dumped.size(), 3u);
  for (const auto& [rank, blocks] : dumped)
    EXPECT_EQ(blocks.size(), 1u) << Raw(rank.worker);
  EXPECT_TRUE(dumped.contains(Rank{WorkerId{3}, 0}));
}

TYPED_TEST(ProductContract, AQueryAllocatesNothing) {
  script::Player player(std::make_unique<TypeParam>(IndexOptions{}));
  std::string text = "V; S0:[1..128]; S0@host:[1..128]+[129,130];";
  for (int rank = 1; rank < 200; ++rank)
    text += fmt::format("S{}{}:[1..{}];", rank, rank % 5 ? "" : "@disk", rank % 128 + 1);
  for (const script::Op& op : script::Parse(text))
    player.Update(op);
  const auto query = script::Parse("Q[1..200]")[0].query;
  const MatchOptions options{.device_holders = true};
  OverlapScores scores;
  player.index().Match(query, options, scores);
  EXPECT_EQ(scores.scored().size(), 200u);
  EXPECT_EQ(test::AllocationsIn([&] { player.index().Match(query, options, scores); }), 0u);
}

// Rows 12c, 33 and 44: a dump has one event for each stretch without a branch. A branch in its
// middle, or a store of nothing there, does not cut it.
TYPED_TEST(ProductContract, DumpsAStretchAtOnce) {
  const struct {
    const char* script;
    std::vector<std::pair<std::size_t, bool>> events;  // blocks, and whether behind a parent
  } rows[] = {{"S0:[1..3]; S0:[1,2]+[]", {{3, false}}},
              {"S0:[1..6]; S0:[1..3]+[9]", {{1, true}, {6, false}}},
              {"S0:[1..3]; S0:[1..6]", {{6, false}}},
              {"S0:[1..3]; S0:[1..3]+[4..6]", {{6, false}}}};
  for (const auto& row : rows) {
    script::Player player(std::make_unique<TypeParam>(IndexOptions{}));
    for (const script::Op& op : script::Parse(row.script))
      player.Update(op);
    std::vector<std::pair<std::size_t, bool>> events;
    player.index().Dump([&events](const PlacementEvent& event) {
      events.emplace_back(event.blocks.size(), event.parent.has_value());
    });
    std::sort(events.begin(), events.end());
    EXPECT_EQ(events, row.events) << row.script;
    EXPECT_EQ(player.index().Stats().splits, 0u) << row.script;
  }
}

// Row 92: what is stored again and again takes no more than once.
TYPED_TEST(ProductContract, RepeatedStoresTakeNoMemory) {
  script::Player player(std::make_unique<TypeParam>(IndexOptions{}));
  const script::Op store = script::Parse("S0:[1..3]")[0];
  const PlacementEvent event = store.Event();
  EXPECT_EQ(player.Update(store), "ok");
  const RankSlot slot = player.slots().at(store.rank);
  const IndexStats once = player.index().Stats();
  EXPECT_EQ(test::AllocationsIn([&] {
              for (int i = 1; i < 1'000; ++i)
                player.index().Apply(slot, event);
            }),
            0u);
  const IndexStats stats = player.index().Stats();
  EXPECT_EQ(stats.memberships, 3u);
  EXPECT_EQ(stats.nodes, 3u);
  EXPECT_EQ(stats.bytes_of, once.bytes_of);
}

TEST(RunArena, RefusesAStoreThatCouldPassTheLimit) {
  IndexOptions options;
  options.blocks_max = 5;
  script::Player player(std::make_unique<RunArena>(options));
  for (const script::Op& op :
       script::Parse("S0:[1..3]; S0:[7..9]!cap; S0:[1..3]+[4,5]; S1:[9]!cap; R0:[1..5]{4}"))
    EXPECT_EQ(player.Update(op), op.expected_status) << op.text;
  EXPECT_EQ(player.index().Stats().nodes, 4u);
}

TEST(RunArena, AFullIndexTakesWhatNeedsNoNewBlock) {
  IndexOptions options;
  options.blocks_max = 5;
  script::Player player(std::make_unique<RunArena>(options));
  for (const script::Op& op :
       script::Parse("S0:[1..5]; S0:[1..5]!dup; S1:[1..4]; H0@host:[1..5]{4}; S0:[1..5]+[6]!cap;"
                     "S1:[1..4]+[5]; S1:[1..4]+[7]!cap; S2:^77+[8]!pnf; Q[1..5]={0:5 1:5}"))
    if (op.updates()) {
      EXPECT_EQ(player.Update(op), op.expected_status) << op.text;
    }
  EXPECT_EQ(player.index().Stats().nodes, 5u);
}

TEST(RunArena, RememberedBlocksGiveWayToAStore) {
  IndexOptions options;
  options.blocks_max = 5;
  script::Player player(std::make_unique<RunArena>(options));
  for (const script::Op& op : script::Parse("S0:[1..5]; R0:[1..5]{0..4}; S1:[11..15]"))
    EXPECT_EQ(player.Update(op), op.expected_status) << op.text;
  const IndexStats stats = player.index().Stats();
  EXPECT_EQ(stats.nodes, 5u);
  EXPECT_EQ(stats.idle_nodes, 0u);
}

// Each name would keep the whole chain before it.
TEST(RunArena, NamesKeepFewBlocksThatNobodyHolds) {
  constexpr std::uint64_t kChains = 16;
  constexpr std::uint64_t kLength = 20'000;
  RunArena index{IndexOptions{}};
  const RankSlot slot = *index.AddRank(Rank{WorkerId{1}, 0});
  const auto name_of = [](std::uint64_t chain, std::uint64_t i) {
    return EngineHash{chain * kLength + i};
  };
  for (std::uint64_t chain = 0; chain < kChains; ++chain) {
    std::vector<PlacedBlock> blocks;
    for (std::uint64_t i = 0; i < kLength; ++i)
      blocks.push_back({name_of(chain, i), BlockHash{chain * kLength + i}});
    PlacementEvent event;
    event.blocks = blocks;
    index.Apply(slot, event);
  }
  for (std::uint64_t i = 0; i < kLength; ++i) {  // the heads of all first
    std::vector<EngineHash> names;
    for (std::uint64_t chain = 0; chain < kChains; ++chain)
      names.push_back(name_of(chain, i));
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = names;
    index.Apply(slot, event);
  }
  const IndexStats stats = index.Stats();
  EXPECT_EQ(stats.nodes, 0u);
  EXPECT_LE(stats.idle_nodes, 65'536 + kLength);
  EXPECT_LT(stats.bytes, 4'000'000u);
}

TEST(RunArena, DropsJoiningBlocksThatPassTheLimit) {
  IndexOptions options;
  options.blocks_max = 3;
  script::Player player(std::make_unique<RunArena>(options));
  for (const script::Op& op : script::Parse("S0:[1,2]+[3,4]!pnf; S0:[1]; S0:[1]+[2] !full"))
    EXPECT_EQ(player.Update(op), op.expected_status) << op.text;
  EXPECT_EQ(player.index().Stats().nodes, 3u);
  EXPECT_EQ(player.index().Stats().pending_dropped, 1u);
}

TEST(RunArena, GivesItsMemoryBack) {
  script::Player player(std::make_unique<RunArena>(IndexOptions{}));
  const Rank rank{WorkerId{1}, 0};
  const RankSlot slot = *player.index().AddRank(rank);
  const std::uint64_t before = player.index().Stats().bytes;
  std::vector<PlacedBlock> blocks;
  for (std::uint64_t i = 0; i < 20'000; ++i)
    blocks.push_back({EngineHash{i}, BlockHash{i}});
  PlacementEvent event;
  event.blocks = blocks;
  player.index().Apply(slot, event);
  const std::uint64_t block_bytes = blocks.size() * (sizeof(EngineHash) + sizeof(BlockHash));
  EXPECT_GT(player.index().Stats().bytes, before + block_bytes);
  EXPECT_LT(player.index().Stats().bytes, before + 3 * block_bytes);
  event.kind = PlacementKind::kCleared;
  player.index().Apply(slot, event);
  EXPECT_LT(player.index().Stats().bytes, before + 4'096);
}

// Blocks that nobody holds stay as the way to branches, up to the deepest of these, however many
// there are and in whatever order they come and go.
TEST(RunArena, KeepsTheWayToTheDeepestBranchOnly) {
  constexpr std::uint32_t kLength = 200;
  RunArena index{IndexOptions{.remembered_names_max = 0}};
  const RankSlot slot = *index.AddRank(Rank{WorkerId{1}, 0});
  Rng rng(44);
  std::vector<PlacedBlock> chain;
  std::vector<EngineHash> names;
  for (std::uint32_t i = 1; i <= kLength; ++i) {
    chain.push_back({EngineHash{i}, BlockHash{i}});
    names.push_back(EngineHash{i});
  }
  const auto store = [&](std::optional<EngineHash> parent, std::span<const PlacedBlock> blocks) {
    PlacementEvent event;
    event.parent = parent;
    event.blocks = blocks;
    index.Apply(slot, event);
  };
  const auto remove = [&](std::span<const EngineHash> removed) {
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = removed;
    index.Apply(slot, event);
  };
  for (int round = 0; round < 6; ++round) {
    store({}, chain);
    // Few to many branches, some behind the same block.
    std::multimap<std::uint32_t, EngineHash> branches;
    for (std::uint64_t i = 0; i < 10u << round; ++i) {
      const auto behind = 1 + static_cast<std::uint32_t>(rng.Below(kLength - 1));
      const PlacedBlock block{EngineHash{1'000 + i}, BlockHash{1'000 + i}};
      store(EngineHash{behind}, std::span(&block, 1));
      branches.emplace(behind, block.engine);
    }
    remove(names);
    while (!branches.empty()) {
      const IndexStats stats = index.Stats();
      ASSERT_EQ(stats.nodes, branches.size());
      ASSERT_EQ(stats.idle_nodes, branches.rbegin()->first);
      auto gone = branches.begin();
      if (rng.Below(2) == 0) gone = std::prev(branches.end());
      if (rng.Below(3) == 0)
        gone = std::next(branches.begin(), static_cast<std::ptrdiff_t>(rng.Below(branches.size())));
      remove(std::span(&gone->second, 1));
      branches.erase(gone);
    }
    ASSERT_EQ(index.Stats().nodes + index.Stats().idle_nodes, 0u);
  }
}

// Row 96: every fiftieth of a million blocks is removed; a chain reaches to its first hole.
TEST(RunArena, AMillionBlocksWithHoles) {
  constexpr std::uint64_t kChains = 1'000;
  constexpr std::uint64_t kLength = 1'000;
  RunArena index{IndexOptions{}};
  const RankSlot slot = *index.AddRank(Rank{WorkerId{1}, 0});
  const auto blocks_of = [](std::uint64_t chain) {
    std::vector<PlacedBlock> blocks;
    for (std::uint64_t i = 0; i < kLength; ++i)
      blocks.push_back({EngineHash{chain * kLength + i}, BlockHash{chain * kLength + i + 1}});
    return blocks;
  };
  for (std::uint64_t chain = 0; chain < kChains; ++chain) {
    const auto blocks = blocks_of(chain);
    PlacementEvent event;
    event.blocks = blocks;
    index.Apply(slot, event);
  }
  Rng rng(96);
  std::vector<std::uint32_t> depths(kChains, kLength);
  for (std::uint64_t i = 0; i < kChains * kLength / 50; ++i) {
    const std::uint64_t chain = rng.Below(kChains);
    const auto at = static_cast<std::uint32_t>(rng.Below(kLength));
    const EngineHash removed{chain * kLength + at};
    PlacementEvent event;
    event.kind = PlacementKind::kRemoved;
    event.removed = std::span(&removed, 1);
    index.Apply(slot, event);
    depths[chain] = std::min(depths[chain], at);
  }
  OverlapScores scores;
  std::uint32_t wrong = 0;
  for (std::uint64_t chain = 0; chain < kChains; ++chain) {
    std::vector<BlockHash> query;
    for (const PlacedBlock& block : blocks_of(chain))
      query.push_back(block.local);
    index.Match(query, {}, scores);
    wrong += scores.at(slot).depth() != depths[chain];
  }
  EXPECT_EQ(wrong, 0u);
}

// 76 at the size where 16-bit slots would wrap.
TEST(RunArena, Serves70000Ranks) {
  IndexOptions options;
  options.ranks_max = 70'000;
  RunArena index(options);
  const auto three = script::Parse("S0:[1..3]")[0];
  const auto five = script::Parse("S0:[1..5]; Q[1..5]");
  for (std::uint32_t worker = 0; worker < options.ranks_max; ++worker) {
    const auto slot = index.AddRank(Rank{WorkerId{worker}, 0});
    ASSERT_TRUE(slot);
    index.Apply(*slot, (worker % 3 == 0 ? five[0] : three).Event());
  }
  EXPECT_FALSE(index.AddRank(Rank{WorkerId{options.ranks_max}, 0}));
  OverlapScores scores;
  index.Match(five[1].query, {}, scores);
  ASSERT_EQ(scores.scored().size(), options.ranks_max);
  std::uint32_t wrong = 0;
  for (const RankSlot slot : scores.scored()) {
    const RankOverlap& overlap = scores.at(slot);
    wrong += overlap.device() != (Raw(overlap.rank.worker) % 3 == 0 ? 5u : 3u);
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace kvr::index
