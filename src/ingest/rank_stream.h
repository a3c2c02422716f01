// Puts the messages of one event stream in order and repairs what is missing. Pure: bytes and times
// go in, calls of a sink come out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "fleet/rank_ledger.h"
#include "model/rank_state.h"
#include "model/stream_position.h"
#include "net/event_socket.h"
#include "wire/snapshot_seal.h"

namespace kvr::ingest {

// Who still has the messages that were published while nobody listened.
enum class Backlog : std::uint8_t {
  kNone,      // nobody
  kReplay,    // a replay endpoint, which may be asked
  kBuffered,  // the engine, which hands them on in order once the link is up again
};

// What a RankStream tells its owner to do, in order.
class StreamSink {
 public:
  enum class Outcome : std::uint8_t { kApplied, kUndecodable };

  virtual ~StreamSink() = default;
  // The next message of the engine's history. `payload` is borrowed for the call.
  virtual Outcome Apply(std::uint64_t sequence, std::span<const std::byte> payload) = 0;
  // Why the last such message was kUndecodable, for people; empty where that is not known.
  [[nodiscard]] virtual std::string_view undecodable() const { return {}; }
  // Forget every block that this stream announced.
  virtual void Clear() = 0;
  // Messages are lost for good and the blocks announced so far are kept: whatever was counted along
  // the stream may be wrong from here on.
  virtual void NoteLoss() = 0;
  // Ask the replay endpoint for everything from `from` on, over a fresh socket: what an earlier
  // request still sends must not arrive. The answers go to OnReplay.
  virtual void StartReplay(std::uint64_t from) = 0;
  virtual void StopReplay() = 0;

  // Of a publisher of RouterEvents only. Ask for all that the rank holds, or how well it is known,
  // as StartReplay asks for messages.
  virtual void StartSnapshot() = 0;
  virtual void AskState() = 0;
  // What the rank holds comes in pieces, which are gathered aside until Swap, StopReplay or another
  // request. False when there is no room for so many blocks.
  virtual bool BeginSnapshot(std::uint64_t blocks) = 0;
  enum class Piece : std::uint8_t { kTaken, kUndecodable, kForeign, kNoRoom };
  virtual Piece AddPiece(std::span<const std::byte> events) = 0;
  // Blocks gathered so far.
  [[nodiscard]] virtual std::uint64_t gathered() const = 0;
  // The rank holds what was gathered and nothing else: what events up to `last_event` came to.
  virtual void Swap(std::uint64_t last_event) = 0;
  // Whether nothing that came before the message matters for what the rank holds after it. Asked
  // where it would mend something.
  virtual bool Empties(std::span<const std::byte> payload) = 0;

  virtual void SetState(RankState state, StateReason reason, std::string_view detail) = 0;
};

struct StreamStats {
  std::uint64_t applied = 0;   // messages handed to Apply and taken
  std::uint64_t replayed = 0;  // ... of them from the replay endpoint
  std::uint64_t gaps = 0;      // jumps of the live sequence
  std::uint64_t missed = 0;    // messages given up, of one loss at most RankStream::kMissedMax
  std::uint64_t repeated = 0;  // dropped: applied before, the same bytes again, or a stray
  std::uint64_t late = 0;  // dropped: arrived after they were given up, or after their connection
  std::uint64_t restarts = 0;
  std::uint64_t clears = 0;
  std::uint64_t disconnects = 0;
  std::uint64_t replays_started = 0;
  std::uint64_t replays_completed = 0;   // reached what they were for, without a hole
  std::uint64_t replays_incomplete = 0;  // ended, but messages were missing
  std::uint64_t replays_failed = 0;      // silent, malformed or endless
  std::uint64_t replays_foreign = 0;     // turned out to be of another engine
  std::uint64_t confirmed = 0;           // looks at the end of the history, answered
  std::uint64_t snapshots_asked = 0;
  std::uint64_t snapshots_taken = 0;
  std::uint64_t snapshots_failed = 0;   // silent, torn or of another publisher; asked for again
  std::uint64_t snapshots_refused = 0;  // larger than what may be gathered
  std::uint64_t snapshot_bytes = 0;     // of pieces that came
  std::uint64_t overtaken = 0;          // recoveries that a clear made needless
  std::uint64_t undecodable = 0;
  std::uint64_t bad_frame_count = 0;  // live messages that do not have 3 frames
  std::uint64_t bad_sequence = 0;     // live messages without an 8-byte sequence
  std::uint64_t bad_plane_frame = 0;  // live messages of an event plane without a whole envelope
  std::uint64_t bad_identity = 0;     // ... whose envelope names another publisher or number
  std::uint64_t park_overflow = 0;    // live messages that found the parking place full
  // What became of each number that the stream is past, and how far it went back in all: what is
  // passed less what was taken back is the next number.
  std::array<std::uint64_t, fleet::kMessageFateNames.size()> passed{};
  std::uint64_t taken_back = 0;

  // Live messages refused for their frames.
  [[nodiscard]] std::uint64_t bad_frames() const {
    return bad_frame_count + bad_sequence + bad_plane_frame + bad_identity;
  }
};

// One engine's numbered stream: live messages, and a replay endpoint that may be there.
//
// * Messages are applied in sequence, each once. Live messages that arrive while history is being
//   fetched are parked and applied strictly after it.
// * Connected with a replay endpoint: everything is replayed from 0. Connected again: replay starts
//   at the last applied message, whose bytes prove that it is still the same engine; if they
//   differ, or the engine does not know the message, it is another incarnation: the blocks are
//   cleared and history starts over.
// * Connected again without one: what was published meanwhile is lost, and a number that goes on
//   proves nothing, as a new engine may have come just as far. The blocks are kept, degraded
//   (no_replay_endpoint), until a lower number shows the new engine. With `clear_on_loss` they are
//   cleared, and what had arrived by then is dropped, as it may be of either connection.
// * A replay endpoint is taken for the engine's own once it knows a live message of this connection
//   (a witness) with its bytes; it is asked for that soon after the first has come. If it has other
//   bytes, or keeps on beginning behind all witnesses, it belongs to another engine: the blocks are
//   cleared, degraded(replay_mismatch), and nothing of it is used before the engine restarts or it
//   turns out to know the newest live message, which is looked at with pauses that grow. (The ring
//   of an engine whose live messages are read late begins behind all witnesses, too; there the live
//   message that the answer began with proves it as soon as it is read.) The answer that brings the
//   proof must have the last message that was taken from the endpoint before: if its bytes are
//   others, requests end at several engines, and history is fetched anew. As
//   long as it only does not know them, what it told is kept, degraded likewise. Messages of a
//   connection that broke may come behind the report of the next one, so that there a second
//   witness decides. Numbers far beyond the live ones are not believed at all.
// * Gap: the missing messages are replayed before anything newer is applied. A look afterwards asks
//   for the last one before it: if its bytes differ, the engine was replaced behind something that
//   kept the link up, which is a restart. A stream that falls
//   silent may have lost its last ones, which no newer one shows: the endpoint is asked.
//   If it has messages again and again that never come live, the rank is degraded(not_live): the
//   subscription is to another topic, or live messages are refused for their frames.
// * A live message that differs from what the endpoint told under its number ends all trust in the
//   endpoint, as if nothing had been proven.
// * A restart is a message 0, a number far below one seen, or a lower number on a new connection,
//   each with other bytes: cleared, started over. The same bytes again are a duplicate. A message
//   that fills a hole just passed is late. Any other step back may be a stray: it is dropped, and a
//   restart only if the replay endpoint no longer knows the last applied message or the number
//   after the stray's comes next.
// * An answer begins later than it was asked to (the ring has moved on): lost messages may have
//   removed blocks, so the blocks are cleared and rebuilt from what the ring still has. The rank
//   may then undercount, never overcount.
// * An answer ends before the messages that are missing (the ring lags behind, or has lost them):
//   nothing is cleared. The rank is degraded(gap_unrepaired), the rest is asked for again, with
//   pauses that grow; after the last attempt the live stream goes on, and when the ring has filled
//   later, everything from the first missing message on is applied again, in order.
// * What cannot be fetched at all is given up and the stream goes on, degraded. Holes of this kind
//   keep the blocks known so far by default, because nothing could rebuild them: a block whose
//   removal was lost stays until the engine names it again. With `clear_on_loss` every loss clears,
//   so that the index never overcounts whatever is lost.
// * An endpoint that failed and answers again is asked how far its ring reaches back. Where that is
//   message 0, history starts over. Else what was given up meanwhile is applied, and all that came
//   after it once more; only if the ring has lost it, too, the loss is history_gone. That is looked
//   at once more, in case the endpoint told less than its ring has.
// * A message that empties the rank makes everything before it needless: a recovery under way, and
//   what was lost. (Not where it may be a leftover of the connection before.)
//
// A publisher of RouterEvents (its messages are envelopes) can tell all that its rank holds at one
// message. It is asked for that where messages cannot be fetched any more:
//
// * What is known goes on to count, and live messages are parked, until the snapshot is whole. Then
//   it takes the place of what is known, and the stream goes on behind it. A torn one changes
//   nothing and is asked for again, with pauses that grow. When none is to be had, the loss is
//   treated like an engine's, and a look now and then whether the publisher answers leads to
//   another attempt; of one that drips in and had not ended within snapshot_max, after as long.
// * Another publisher on one connection is a restart. That of the live messages has to be that of
//   the endpoint: if it is not again and again, the endpoint is another's, as above. A snapshot of
//   another publisher than that of the live messages, or from before what was applied, is not
//   taken.
// * What the publisher tells is known no better than it says of itself: it is asked when the stream
//   is in order and every state_interval. One that is not as far as what had been applied when it
//   was asked is another one.
// * A snapshot with other numbers of blocks than its seals say is torn.
//
// The state is exact only when every message since the engine's first was applied, or is in a
// snapshot, and the publisher's is. Not thread-safe.
class RankStream {
 public:
  // A larger jump is no loss but a wrong number.
  static constexpr std::uint64_t kMissedMax = 1u << 20;

  struct Options {
    std::size_t parked_messages_max = 4'096;  // beyond: newer ones are dropped and fetched later
    std::size_t parked_bytes_max = 32u << 20;
    std::uint64_t replay_messages_max = 1u << 20;  // beyond: the replay is taken as endless, failed
    Millis replay_silence{5'000};                  // without an answer: the attempt failed
    Millis replay_max{300'000};                    // not at its end by then: likewise
    std::uint32_t replay_attempts = 4;             // then given up
    Millis retry_first{200};                       // before the second attempt; doubles
    Millis retry_max{5'000};
    // All attempts at a snapshot together, however one comes in or waits for its turn; then given
    // up, and not asked for again for as long.
    Millis snapshot_max{300'000};
    Millis heal_interval{30'000};  // between looks whether a failed endpoint answers again
    // Asks once more after a (re)connect: messages published before the engine knew of our
    // subscription went nowhere, and no later message may come to show the gap.
    Millis confirm_after{250};
    // How long a stream may be silent before the endpoint is asked whether the last messages were
    // lost; then with pauses that double up to heal_interval. 0: never. Publishers of RouterEvents
    // are asked for their state instead.
    Millis quiet_after{1'000};
    Millis state_interval{2'000};  // between looks how well such a publisher knows its rank
    Millis drop_after_disconnect{
        120'000};  // forget the blocks of an engine gone for so long; 0 never
    // By how much a replayed number may exceed the newest live one: what may be under way.
    std::uint64_t ahead_max = 1u << 20;
    std::uint64_t reorder_max = 16;  // messages by which a late one may trail
    std::uint64_t stray_max = 64;    // a single step back of no more than this is no restart
    bool clear_on_loss = false;

    [[nodiscard]] Result<void> Validate() const;
  };

  // `sink` must outlive the stream and is called from within the calls below.
  RankStream(const Options& options, Backlog backlog, StreamSink& sink);

  // Before anything else: the rank's blocks are known already, from somebody who had applied the
  // stream up to `applied` (none: up to nobody knows where). The stream goes on behind it once the
  // engine turns out to know that message, with its bytes where the digest is known, and is
  // degraded(recovered) until it starts over. An engine that never comes up loses the blocks like
  // one that went away.
  void Adopt(const std::optional<StreamPosition>& applied, Nanos now);

  void OnLink(net::LinkEvent event, Nanos now);
  void OnLive(const net::Frames& frames, Nanos now);
  // Every live message that arrived before all links that were told of has been handed over.
  void OnDrained() { undrained_ = false; }
  void OnReplay(const net::Frames& frames, Nanos now);
  void OnTick(Nanos now);

  // When OnTick is due at the latest; nothing while only a message can change anything.
  [[nodiscard]] std::optional<Nanos> deadline() const;
  [[nodiscard]] const StreamStats& stats() const { return stats_; }
  // The last sequence applied or given up.
  [[nodiscard]] std::optional<std::uint64_t> watermark() const;
  // Where another one can go on who takes the blocks over, which may not be all there were; none
  // when that would not do, because something before is doubtful. Whether the link is up makes no
  // difference.
  [[nodiscard]] std::optional<StreamPosition> position() const;
  [[nodiscard]] std::size_t parked() const { return parked_.size(); }
  [[nodiscard]] bool connected() const { return link_ == Link::kUp; }

 private:
  using Digest = std::uint64_t;
  // Messages that are remembered to tell a duplicate from a restart.
  static constexpr std::size_t kRecentMax = 64;
  // What is wrong with an answer, in words.
  static constexpr std::string_view kOtherPublisher =
      "it is of another publisher than the live messages";
  enum class Link : std::uint8_t { kNever, kUp, kDown };
  // Why a replay runs.
  enum class Purpose : std::uint8_t {
    kNone,
    kRebuild,   // from 0; the first answer clears what is known
    kVerify,    // from the last applied message, which must come back with the same bytes, or from
                // the first witness if that is older
    kFill,      // from the first missing message
    kConfirm,   // from the next message or the first witness, beside the live stream
    kRefill,    // from the first message that was given up, beside the live stream
    kReach,     // from 0, of one that failed or told too little: how far back its ring reaches,
                // likewise
    kSnapshot,  // all at once
    kState,     // how well the publisher knows its rank, beside the live stream
    kRelease,   // whether a disowned endpoint knows the newest live message by now, beside it
  };

  [[nodiscard]] bool DoubtsEndpoint() const;

  // rank_stream.cc: the live side.
  void HandleLive(std::uint64_t sequence, std::span<const std::byte> payload,
                  std::optional<std::uint64_t> publisher, Nanos now);
  // A live message not newer than the newest. True when it was dealt with; false when it showed a
  // restart, whose first message it is.
  bool HandleOld(std::uint64_t sequence, Digest digest, std::span<const std::byte> payload,
                 Nanos now);
  // A step back that proves nothing by itself.
  [[nodiscard]] bool MayBeStray(std::uint64_t sequence) const;
  void Remember(std::uint64_t sequence, Digest digest);
  // Looks what the live message, newer than all live ones, says of the replay endpoint. True when
  // the endpoint has to be asked before the message can be used.
  [[nodiscard]] bool DoubtsReplay(std::uint64_t sequence, Digest digest, Nanos now);
  // Applies the message when it is next; finds gaps. False when it has to wait for a replay.
  bool Advance(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  void ApplyNext(std::uint64_t sequence, std::span<const std::byte> payload, bool replayed);
  // The endpoint is asked when nothing comes for a while.
  void LookWhenQuiet(Nanos now);
  // Whether a message that empties the rank, and is of this connection or `replayed`, may be taken
  // to do so.
  [[nodiscard]] bool MayMend(bool replayed) const;
  void Park(std::uint64_t sequence, std::span<const std::byte> payload);
  void ClearParked();
  void DrainParked(Nanos now);
  void OnLinkUp(Nanos now);
  void OnLinkDown(Nanos now);
  // Forgets the engine; `keep_parked` when the parked messages are the new engine's.
  void StartOver(bool keep_parked, Nanos now);
  void Clear();
  void GiveUp(StateReason reason, std::uint64_t first, std::uint64_t last);
  // All that moves `next_`: on to a number, with what became of those before it, or back.
  void PassTo(std::uint64_t next, fleet::MessageFate fate);
  void GoBackTo(std::optional<std::uint64_t> next);
  // Something is lost for good: clears where the class comment says so.
  void Lose(StateReason reason, std::string detail);
  void CountMissed(std::uint64_t messages);
  void SetLoss(StateReason reason, std::string detail);
  void ForgetLoss();
  void PublishState();

  // rank_stream_replay.cc: the replay side.
  // The next look begins with the last message that was applied.
  void NoteLastKnown();
  // What the end of an answer says of who gave it.
  void NoteEndOf(const net::Frames& frames);
  void HandleReplayed(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  // Holds an answer against the witnesses. False when the endpoint is another engine's.
  [[nodiscard]] bool Testify(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  // An answer said nothing of the witnesses it was asked for: others are taken, and more time.
  void PassWitnesses();
  [[nodiscard]] Millis ConfirmPause() const;
  // It knows a live message, and what it told before.
  void Prove();
  // Nothing is proven of the endpoint (any more).
  void ForgetProof();
  // Looks at an endpoint that was disowned.
  void LookForRelease(Nanos now);
  void HandleRelease(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  // The replay endpoint is another engine's.
  void Disown(std::string why, Nanos now);
  // The first answers of a request. False when nothing else is to be done with one.
  bool HandleFirstReplayed(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  void HandleReplayEnd(Nanos now);
  // The answer ended before message `target`, which is known to exist.
  void HandleUnfilled(std::uint64_t target, Nanos now);
  // Goes back to the first message that was missing; what is applied again ends as it was.
  void Rewind();
  // How far the ring of an endpoint that failed reaches back. True when the message is the next
  // one.
  bool HandleReach(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);
  // An endpoint may have told less for a moment than its ring has.
  [[nodiscard]] bool MayLookBack() const {
    return loss_ == StateReason::kHistoryGone && !plane_ && !looked_back_;
  }
  // It does not reach back to what was given up.
  void HandleOutrun(std::uint64_t sequence, Nanos now);
  // The replay endpoint is given up for now.
  void NoteFailure();
  // It has told all that came since.
  void EndFailure();
  void Begin(Purpose purpose, Nanos now);
  void Ask(Nanos now);
  void AttemptFailed(std::string_view why, Nanos now);
  void PauseAttempt(Nanos now);
  void StopReplay();
  // After a look beside the live stream that changed nothing.
  void HealLater(Nanos now);
  // Ends the replay when the parked messages go on where it is.
  void FinishWhenJoined(Nanos now);
  void FinishReplay(Nanos now);
  // The history is in order; live messages go on.
  void Resume(Nanos now);

  // rank_stream_snapshot.cc: all at once.
  // Asks for a snapshot in the place of what is under way. False when none is to be had.
  bool Recover(Nanos now);
  // Whether the message is of the publisher of what was applied.
  [[nodiscard]] bool IsKnownPublisher(std::span<const std::byte> payload) const;
  void HandleSnapshot(const net::Frames& frames, Nanos now);
  // Of a snapshot or, alone, of the state. What is wrong with it, or nothing.
  [[nodiscard]] std::string_view CheckSeal(const wire::SnapshotSeal& seal) const;
  void HandleBegin(const wire::SnapshotSeal& seal, Nanos now);
  void HandlePiece(std::span<const std::byte> events, Nanos now);
  void HandleEnd(const wire::SnapshotSeal& seal, Nanos now);
  void HandleState(const wire::SnapshotSeal& seal, Nanos now);
  void NoteUpstream(const wire::SnapshotSeal& seal, Nanos now);
  void SnapshotFailed(std::string_view why, Nanos now);
  // There is no time left for what the publisher was asked.
  void SnapshotOverdue(Nanos now);
  void GiveUpSnapshot(std::string_view why, Nanos now);
  // Whether the message is of another publisher than what was applied: a restart that nothing else
  // showed, or an endpoint of another publisher.
  [[nodiscard]] bool IsOthers(std::optional<std::uint64_t> publisher) const {
    return publisher && known_publisher_ && *publisher != *known_publisher_;
  }
  void ChangePublisher(bool keep_parked, Nanos now);
  // The message, which empties the rank, is newer than all that was applied.
  void Overtake(std::uint64_t sequence, std::span<const std::byte> payload, Nanos now);

  // Whether live messages have to wait.
  [[nodiscard]] bool Blocking() const {
    return purpose_ != Purpose::kNone && purpose_ != Purpose::kConfirm &&
           purpose_ != Purpose::kRefill && purpose_ != Purpose::kReach &&
           purpose_ != Purpose::kState && purpose_ != Purpose::kRelease;
  }

  // Whether the publisher is being asked for more than messages.
  [[nodiscard]] bool AsksPublisher() const {
    return purpose_ == Purpose::kSnapshot || purpose_ == Purpose::kState;
  }

  // Whether there is an endpoint to ask.
  [[nodiscard]] bool HasReplay() const { return backlog_ == Backlog::kReplay && !foreign_; }

  const Options options_;
  const Backlog backlog_;
  StreamSink& sink_;
  StreamStats stats_;

  Link link_ = Link::kNever;
  Nanos down_since_{0};
  bool linked_before_ = false;  // this connection is not the first
  bool leftovers_ = false;      // what comes without a connection goes on with the last one
  bool undrained_ = false;      // what comes may be of an earlier connection

  // The stream position: everything below `next_` was applied or given up. None: nothing seen yet.
  std::optional<std::uint64_t> next_;
  std::optional<Digest> last_digest_;  // of message next_ - 1, when it was applied
  bool refused_ = false;               // the last word of the link was kRefused
  bool dirty_ = false;                 // something was applied since the last clear
  bool adopted_ = false;               // ... by somebody else, and nothing by this stream so far
  bool adopted_whole_ = false;         // ... up to a known message, since the last clear
  bool history_from_start_ = false;    // ... beginning with message 0
  bool replayed_ = false;              // ... partly from the replay endpoint
  StateReason loss_ = StateReason::kNone;
  std::string loss_detail_;

  // To tell duplicates, late messages and restarts: the newest live message, the first live one of
  // this connection, and the last ones of this connection, live and replayed.
  std::optional<std::uint64_t> newest_;
  std::optional<std::uint64_t> first_live_;
  std::map<std::uint64_t, Digest> recent_;
  std::optional<std::uint64_t> stray_;  // the last live message was one, of this number

  // Whose is the replay endpoint? See the class comment. The witnesses are the first live message
  // since the last look, whose age a ring that lags behind needs, and the newest.
  std::map<std::uint64_t, Digest> witnesses_;
  bool proven_ = false;        // on this connection
  bool foreign_ = false;       // it is another engine's
  std::uint32_t looks_ = 0;    // that brought no proof
  std::uint32_t unknown_ = 0;  // ... as the answer ended before all witnesses
  std::uint32_t passed_ = 0;   // ... as it began behind them
  Nanos pass_counts_at_{0};    // the next such look counts from here on
  // ... and the number and bytes it began with: the live message of that number may prove it.
  std::optional<std::pair<std::uint64_t, Digest>> ahead_;
  std::uint32_t contradictions_ = 0;  // ... as it had other bytes
  // The last message that it told and that was applied, while nothing is proven: who proves the
  // endpoint must have told the same. Replay requests may end at different engines.
  std::optional<std::pair<std::uint64_t, Digest>> told_;
  // The last message before what the endpoint told last, which another engine would not know. A
  // publisher says itself who it is.
  std::optional<std::pair<std::uint64_t, Digest>> last_known_;
  Millis release_pause_{0};  // before a disowned endpoint is looked at again
  Nanos witness_from_{0};    // no live message before is one
  bool sought_ = false;      // the request under way was made for them

  std::map<std::uint64_t, std::vector<std::byte>> parked_;
  std::size_t parked_bytes_ = 0;
  bool park_overflowed_ = false;

  Purpose purpose_ = Purpose::kNone;
  std::uint64_t asked_ = 0;
  std::uint64_t asked_at_ = 0;  // next_ then
  std::uint32_t attempt_ = 0;
  std::uint64_t answers_ = 0;                 // of this attempt
  std::optional<std::uint64_t> passed_next_;  // next_ when a look's answer began behind it
  bool hole_ = false;                         // this replay left messages out
  bool filled_ = false;                       // ... told some that were new
  bool waiting_retry_ = false;
  bool unfilled_ = false;  // the last answer ended too early and brought nothing
  // The first message that was given up because answers ended before it, or the endpoint failed,
  // and may be had later; and the bytes of the one before it, where only those show that it still
  // is the same engine.
  struct Missing {
    std::uint64_t from = 0;
    std::optional<Digest> before;

    // Where a request for it begins.
    [[nodiscard]] std::uint64_t asked() const { return from - (before ? 1 : 0); }
  };
  std::optional<Missing> missing_;
  // The loss when the endpoint failed, which is what is left of it when all that came since has
  // been had after all.
  struct Failure {
    StateReason loss = StateReason::kNone;
    std::string loss_detail;
    bool gap = false;  // blocks are known from before and from behind what is missing
  };
  std::optional<Failure> failure_;
  bool looked_back_ = false;                 // what is gone was looked for once more
  std::optional<std::uint64_t> known_from_;  // the first message applied since the last clear
  // Messages below were applied before the stream went back; it has to get there again.
  std::optional<std::uint64_t> rewound_from_;
  bool replay_broken_ = false;  // given up; gaps are not asked for until it is tried again
  // Message next_ came live and could not be decoded; a replayed copy may be better.
  bool unread_ = false;
  // A message was passed undecoded: replayed copies are no better, no use asking for the next one.
  bool undecodable_confirmed_ = false;
  bool confirm_wanted_ = false;
  // The parked messages may begin with some that the old engine left in the transport: the replay
  // is waited for to its end, so that its copies win.
  bool join_at_end_ = false;
  Nanos replay_deadline_{0};   // of the silence, or of the pause before the next attempt
  Nanos replay_until_{0};      // of the attempt as a whole
  std::string replay_fault_;   // of the endpoint, when it last failed for good
  std::string attempt_fault_;  // of the attempt before this one
  std::optional<Nanos> confirm_at_;
  std::optional<Nanos> heal_at_;
  std::optional<Nanos> quiet_at_;  // the stream is silent then
  // Looks since the last live message of this connection that found messages which never came live,
  // and whether the one under way has.
  std::uint32_t finds_ = 0;
  bool look_found_ = false;
  std::uint64_t refused_live_ = 0;  // live messages refused for their frames since then
  Millis quiet_pause_{0};
  std::optional<std::uint64_t> answered_to_;  // the newest message of this attempt's answers

  // Of a publisher of RouterEvents.
  bool plane_ = false;                            // there is one
  std::optional<std::uint64_t> live_publisher_;   // of the live messages of this connection
  std::optional<std::uint64_t> known_publisher_;  // of what was applied, as far as known
  std::uint32_t changes_ = 0;                // of the publisher, since a live message was applied
  std::optional<wire::SnapshotSeal> begun_;  // the snapshot under way, once something came
  Nanos snapshot_until_{0};                  // by then it, or the state, has to be there
  Nanos snapshot_from_{0};                   // not asked for before
  Purpose instead_of_ = Purpose::kNone;      // what goes on when there is none
  bool snapshot_failed_ = false;             // not asked for again before the publisher answers
  std::string snapshot_fault_;               // ... why
  std::optional<std::uint64_t> too_many_;    // so many blocks were refused
  RankState upstream_state_ = RankState::kExact;  // the publisher's
  StateReason upstream_reason_ = StateReason::kNone;
  std::optional<Nanos> state_at_;  // the publisher is asked again
  Millis state_pause_{0};
};

}  // namespace kvr::ingest
