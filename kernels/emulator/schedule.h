// The order in which blocks, warps and lanes take turns, as switches from the usual one: recorded, and replayed.
//
// In the usual order the lowest number goes first: of the blocks that begin, of the warps in each round of a block, of a
// warp's lanes between two meetings. A switch is one that goes before a lower one. Any subset of the switches of an execution
// is an order, too, so that whoever replays them can look for the fewest with which a program fails
// (hw4cli/emulator/program/story.py).
#pragma once
#include "shadow.h"

#include <string>
#include <vector>

namespace emu {
// Where turns are taken: at the beginning of blocks; in a round of a block; between two meetings of a warp, of which a round
// may have several.
struct Turn {
    enum Level : uint8_t { BLOCKS, WARPS, LANES } level;
    uint32_t block, round, warp, pass;
};
extern bool scheduled;  // whether turns are recorded or replayed
void record_switches();
void replay_switches(const std::string& lines, bool tells);  // tells: what exchanged its order is kept for a story
std::vector<std::string> recorded_switches();  // blocks' first, then warps', then lanes'
const std::vector<std::string>& exchanged_accesses();  // of a replay: lines of a story

void next_launch();
uint32_t next_round(unsigned block);
// Replaying: `turns` in the order that the switches make of it.
void arrange(const Turn&, std::vector<unsigned>& turns);
// One has its turn now, and has had it: recorded, and whether it goes before a lower one. `over`: all have.
void turn_begins(const Turn&, unsigned one, bool first = true);  // first: it has not been put aside
void turn_ends(const Turn&, bool ran);
void turns_over(const Turn&);
// Replaying for a story: an access that may have exchanged its order with another one.
extern bool telling;
void tell_access(const char* at, uint32_t bytes, bool write, uintptr_t pc);
}  // namespace emu
