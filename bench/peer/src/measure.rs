//! What is measured of an index; the same steps as in bench/measure.cc.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dynamo_kv_router::indexer::{KvIndexerMetrics, WorkerTask};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{SyncIndexer, ThreadPoolIndexer};
use serde_json::{json, Value};
use tokio::sync::oneshot;

use crate::op_file::{Kind, Ops};

/// Updates that are sent before their answers are awaited when nothing is timed.
const CHUNK: usize = 1024;
/// Queries that each reader asks before it is timed, and slices that the time of readers is cut into.
const WARM_UP: usize = 128;
const SLICES: usize = 5;

pub struct Options {
    pub seconds: f64,
    pub readers_max: usize,
    pub window_s: f64,
}

pub struct Feed {
    ops: Ops,
    updates: Vec<usize>,
    update_blocks: Vec<u64>,
    queries: Vec<Vec<LocalBlockHash>>,
    query_times_ns: Vec<u64>,
}

impl Feed {
    pub fn new(ops: Ops) -> Feed {
        let mut feed = Feed {
            updates: Vec::new(),
            update_blocks: Vec::new(),
            queries: Vec::new(),
            query_times_ns: Vec::new(),
            ops,
        };
        for (i, op) in feed.ops.list.iter().enumerate() {
            let words = feed.ops.words_of(op);
            if op.kind == Kind::Query {
                feed.queries.push(words.iter().map(|&word| LocalBlockHash(word)).collect());
                feed.query_times_ns.push(op.time_ns);
            } else {
                feed.updates.push(i);
                let per_block = if op.kind == Kind::Stored { 2 } else { 1 };
                feed.update_blocks.push((words.len() / per_block) as u64);
            }
        }
        feed
    }

    pub fn is_empty(&self) -> bool {
        self.queries.is_empty() || self.updates.is_empty()
    }

    fn event(&self, update: usize) -> RouterEvent {
        let op = &self.ops.list[self.updates[update]];
        let words = self.ops.words_of(op);
        let data = match op.kind {
            Kind::Stored => KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: op.parent.map(ExternalSequenceBlockHash),
                start_position: None,
                blocks: words
                    .chunks_exact(2)
                    .map(|pair| KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(pair[0]),
                        tokens_hash: LocalBlockHash(pair[1]),
                        mm_extra_info: None,
                    })
                    .collect(),
            }),
            Kind::Removed => KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: words.iter().map(|&word| ExternalSequenceBlockHash(word)).collect(),
            }),
            Kind::Cleared | Kind::Query => KvCacheEventData::Cleared,
        };
        let event = KvCacheEvent { event_id: update as u64, data, dp_rank: 0 };
        RouterEvent::new(u64::from(op.rank), event)
    }

    fn blocks(&self, begin: usize, end: usize) -> u64 {
        self.update_blocks[begin..end].iter().sum()
    }

    fn block_ops(&self) -> u64 {
        self.blocks(0, self.updates.len()) + self.queries.iter().map(|q| q.len() as u64).sum::<u64>()
    }

    fn held_blocks(&self) -> i64 {
        // Right for files of the generator, where each store is of blocks the rank does not hold.
        let mut held = 0i64;
        for (&i, &blocks) in self.updates.iter().zip(&self.update_blocks) {
            match self.ops.list[i].kind {
                Kind::Stored => held += blocks as i64,
                _ => held -= blocks as i64,
            }
        }
        held
    }
}

/// The index behind one lane of its own pool: a queue, and the pool's loop on a thread.
struct Lane<T: SyncIndexer> {
    index: Arc<T>,
    sender: flume::Sender<WorkerTask>,
    thread: JoinHandle<()>,
}

impl<T: SyncIndexer> Lane<T> {
    fn start(index: T) -> Lane<T> {
        let index = Arc::new(index);
        let (sender, receiver) = flume::unbounded();
        let worker = Arc::clone(&index);
        let thread = thread::spawn(move || worker.worker(receiver, None).expect("the lane ended"));
        Lane { index, sender, thread }
    }

    fn send(&self, task: WorkerTask) {
        assert!(self.sender.send(task).is_ok(), "the lane is gone");
    }

    fn flushed(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.send(WorkerTask::Flush(sender));
        receiver
    }

    /// Applies updates and returns how many the index refused.
    fn apply(&self, feed: &Feed, begin: usize, end: usize) -> u64 {
        let mut failed = 0;
        let mut next = begin;
        while next < end {
            let chunk_end = end.min(next + CHUNK);
            let answers: Vec<_> = (next..chunk_end)
                .map(|update| {
                    let (resp, answer) = oneshot::channel();
                    self.send(WorkerTask::EventWithAck { event: feed.event(update), resp });
                    answer
                })
                .collect();
            for answer in answers {
                failed += u64::from(!answer.blocking_recv().expect("the lane is gone"));
            }
            next = chunk_end;
        }
        failed
    }

    fn stop(self) {
        drop(self.sender);
        self.thread.join().expect("the lane panicked");
    }
}

/// What malloc has given out and not got back, in all arenas.
fn heap_bytes() -> u64 {
    // SAFETY: takes no arguments and returns a struct of numbers.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

fn percentiles(samples: &mut [u32]) -> Value {
    if samples.is_empty() {
        return json!({"count": 0});
    }
    samples.sort_unstable();
    let at = |per_mille: usize| samples[((samples.len() * per_mille + 999) / 1000).max(1) - 1];
    let mean = samples.iter().map(|&ns| f64::from(ns)).sum::<f64>() / samples.len() as f64;
    json!({"count": samples.len(), "mean_ns": mean, "p50_ns": at(500), "p99_ns": at(990),
           "p999_ns": at(999), "max_ns": samples[samples.len() - 1]})
}

fn nanos(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}

/// Reads what an answer is for, rank and depth of all that hold something, and returns a sum of it.
fn read_answer(answer: &OverlapScores) -> u64 {
    answer
        .scores
        .iter()
        .map(|(rank, &depth)| rank.worker_id + u64::from(rank.dp_rank) + u64::from(depth))
        .sum()
}

/// Asks, reads the answer and frees it.
fn match_and_read<T: SyncIndexer>(index: &T, query: &[LocalBlockHash]) {
    black_box(read_answer(&index.find_matches(query, false)));
}

fn timed_match<T: SyncIndexer>(index: &T, query: &[LocalBlockHash]) -> u32 {
    let start = Instant::now();
    match_and_read(index, query);
    nanos(start.elapsed())
}

/// Processor time of this thread.
fn thread_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

fn write_result(seconds: f64, blocks: u64) -> Value {
    json!({"seconds": seconds, "blocks": blocks, "blocks_per_s": blocks as f64 / seconds})
}

/// All updates are in the lane's queue before the clock starts; one thread applies them.
fn measure_write<T: SyncIndexer>(feed: &Feed, index: T) -> Value {
    let (sender, receiver) = flume::unbounded();
    for update in 0..feed.updates.len() {
        assert!(sender.send(WorkerTask::Event(feed.event(update))).is_ok());
    }
    drop(sender);
    let blocks = feed.blocks(0, feed.updates.len());
    let (start, cpu_start) = (Instant::now(), thread_seconds());
    index.worker(receiver, None).expect("the lane ended");
    let cpu_seconds = thread_seconds() - cpu_start;
    let mut result = write_result(start.elapsed().as_secs_f64(), blocks);
    result["cpu_seconds"] = json!(cpu_seconds);
    result["blocks_per_cpu_s"] = json!(blocks as f64 / cpu_seconds);
    result
}

/// The second half of the updates, alone or while this thread asks all it can.
fn measure_second_half<T: SyncIndexer>(feed: &Feed, index: T, ask: bool) -> (Value, Value) {
    let lane = Lane::start(index);
    let (half, end) = (feed.updates.len() / 2, feed.updates.len());
    lane.apply(feed, 0, half);
    let tasks: Vec<_> = (half..end).map(|update| WorkerTask::Event(feed.event(update))).collect();
    let mut samples = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    for task in tasks {
        lane.send(task);
    }
    let mut flushed = lane.flushed();
    if ask {
        let mut query = 0;
        while flushed.try_recv().is_err() {
            samples.push(timed_match(&*lane.index, &feed.queries[query]));
            query = (query + 1) % feed.queries.len();
        }
    } else {
        flushed.blocking_recv().expect("the lane is gone");
    }
    let seconds = start.elapsed().as_secs_f64();
    lane.stop();
    (write_result(seconds, feed.blocks(half, end)), percentiles(&mut samples))
}

/// `ask` is match_and_read, or what leaves the answer unread.
fn measure_loop<T: SyncIndexer>(
    feed: &Feed,
    index: &T,
    seconds: f64,
    ask: fn(&T, &[LocalBlockHash]),
) -> Value {
    let mut passes = Vec::new();
    let start = Instant::now();
    while passes.is_empty() || start.elapsed().as_secs_f64() < seconds {
        let pass = thread_seconds();
        for query in &feed.queries {
            ask(index, query);
        }
        passes.push((thread_seconds() - pass) * 1e9 / feed.queries.len() as f64);
    }
    passes.sort_by(f64::total_cmp);
    json!({"best_ns": passes[0], "median_ns": passes[passes.len() / 2], "passes": passes.len()})
}

/// Readers at once, for a while: queries a second, and processor time of a query in nanoseconds.
fn read_for_a_while<T: SyncIndexer>(
    feed: &Feed,
    index: &T,
    readers: usize,
    seconds: f64,
) -> (f64, f64) {
    let ready = AtomicUsize::new(0);
    let go = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let cpu_ns = AtomicU64::new(0);
    let mut elapsed = 0.0;
    thread::scope(|scope| {
        for reader in 0..readers {
            let (ready, go, done, asked, cpu_ns) = (&ready, &go, &done, &asked, &cpu_ns);
            scope.spawn(move || {
                let mut query = feed.queries.len() * reader / readers;
                let mut ask = || {
                    match_and_read(index, &feed.queries[query]);
                    query = if query + 1 == feed.queries.len() { 0 } else { query + 1 };
                };
                for _ in 0..WARM_UP {
                    ask();
                }
                ready.fetch_add(1, Ordering::SeqCst);
                while !go.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                let mut count = 0;
                let cpu_start = thread_seconds();
                while !done.load(Ordering::SeqCst) {
                    ask();
                    count += 1;
                }
                let spent_ns = (thread_seconds() - cpu_start) * 1e9;
                asked.fetch_add(count, Ordering::SeqCst);
                cpu_ns.fetch_add(spent_ns as u64, Ordering::SeqCst);
            });
        }
        while ready.load(Ordering::SeqCst) != readers {
            thread::yield_now();
        }
        let start = Instant::now();
        go.store(true, Ordering::SeqCst);
        wait_until(start + Duration::from_secs_f64(seconds));
        done.store(true, Ordering::SeqCst);
        elapsed = start.elapsed().as_secs_f64();
    });
    let asked = asked.into_inner();
    (asked as f64 / elapsed, cpu_ns.into_inner() as f64 / asked.max(1) as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// 1, 2, 4, ... readers, a slice of all numbers after the other; the medians of the slices.
fn measure_readers<T: SyncIndexer>(
    feed: &Feed,
    index: &T,
    readers_max: usize,
    seconds: f64,
) -> Vec<Value> {
    let numbers: Vec<_> = std::iter::successors(Some(1), |number| Some(number * 2))
        .take_while(|&number| number <= readers_max)
        .collect();
    let mut slices = vec![Vec::new(); numbers.len()];
    for _ in 0..SLICES {
        for (row, &number) in numbers.iter().enumerate() {
            slices[row].push(read_for_a_while(feed, index, number, seconds / SLICES as f64));
        }
    }
    numbers
        .iter()
        .zip(slices)
        .map(|(number, slices)| {
            let (rates, costs) = slices.into_iter().unzip();
            json!({"readers": number, "queries_per_s": median(rates), "cpu_ns": median(costs)})
        })
        .collect()
}

/// Sleeps until shortly before, then spins: a wake-up may come tens of microseconds late.
fn wait_until(deadline: Instant) {
    const SPIN: Duration = Duration::from_micros(60);
    let left = deadline.saturating_duration_since(Instant::now());
    if left > SPIN {
        thread::sleep(left - SPIN);
    }
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

/// The pool as its users run it, with one lane and its counters; one thread issues updates, this one
/// asks. A window of 0: all is due at once.
fn measure_open_loop<T: SyncIndexer>(feed: &Feed, index: T, window_s: f64) -> Value {
    let metrics = Arc::new(KvIndexerMetrics::new_unregistered());
    let pool = ThreadPoolIndexer::new_with_metrics(
        index,
        1,
        feed.ops.block_tokens.max(2),
        Some(Arc::clone(&metrics)),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let last_ns = feed.ops.list.last().map_or(1, |op| op.time_ns).max(1);
    let scale = window_s * 1e9 / last_ns as f64;
    let mut events: Vec<_> = (0..feed.updates.len()).map(|i| Some(feed.event(i))).collect();
    let mut alone = vec![0u32; feed.queries.len()];
    let mut to_end = vec![0u32; feed.queries.len()];
    let start = Instant::now() + Duration::from_millis(20);
    let due = |time_ns: u64| start + Duration::from_nanos((time_ns as f64 * scale) as u64);
    let (mut issued, mut applied, mut asked, mut answered) = (start, start, start, start);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (i, event) in events.iter_mut().enumerate() {
                wait_until(due(feed.ops.list[feed.updates[i]].time_ns));
                pool.enqueue_event(event.take().unwrap()).expect("the pool is gone");
            }
            issued = Instant::now();
            runtime.block_on(pool.flush_and_wait()).expect("the pool is gone");
            applied = Instant::now();
        });
        for (i, query) in feed.queries.iter().enumerate() {
            let deadline = due(feed.query_times_ns[i]);
            wait_until(deadline);
            let begin = Instant::now();
            match_and_read(pool.backend(), query);
            let end = Instant::now();
            asked = begin;
            alone[i] = nanos(end - begin);
            to_end[i] = nanos(end - deadline);
        }
        answered = Instant::now();
    });
    let since_start = |time: Instant| time.saturating_duration_since(start).as_secs_f64();
    let total_s = since_start(applied.max(answered));
    let issue_span_s = since_start(issued.max(asked));
    let done: u64 = ["stored", "removed", "cleared"]
        .iter()
        .map(|kind| metrics.kv_cache_events_applied.with_label_values(&[*kind, "ok"]).get())
        .sum();
    let failed = feed.updates.len() as u64 - done;
    let valid = failed == 0 && (window_s == 0.0 || issue_span_s <= 1.01 * window_s);
    let block_ops = feed.block_ops() as f64;
    let mut result = json!({
        "window_s": window_s, "total_s": total_s, "issue_span_s": issue_span_s,
        "drain_s": (applied - issued).as_secs_f64(),
        "achieved_block_ops_per_s": block_ops / total_s,
        "failed_updates": failed, "generator_valid": valid,
        "kept_up": window_s > 0.0 && valid && total_s <= 1.10 * window_s,
        "query": percentiles(&mut alone), "query_from_deadline": percentiles(&mut to_end)});
    if window_s > 0.0 {
        result["offered_block_ops_per_s"] = json!(block_ops / window_s);
    }
    result
}

/// `make` returns an empty index.
pub fn replay<T: SyncIndexer>(name: &str, feed: &Feed, options: &Options, make: fn() -> T) -> Value {
    let write = measure_write(feed, make());

    let before = heap_bytes();
    let lane = Lane::start(make());
    let failed = lane.apply(feed, 0, feed.updates.len());
    let heap = heap_bytes().saturating_sub(before);
    let (mut depths, mut scored, mut read) = (0u64, 0u64, 0u64);
    for query in &feed.queries {
        let answer = lane.index.find_matches(query, false);
        read += read_answer(&answer);
        let scores = answer.scores;
        scored += scores.len() as u64;
        depths += scores.values().map(|&depth| u64::from(depth)).sum::<u64>();
    }
    let query_loop = measure_loop(feed, &*lane.index, options.seconds, match_and_read);
    let query_loop_unread = measure_loop(feed, &*lane.index, options.seconds, |index, query| {
        black_box(index.find_matches(query, false));
    });
    let mut samples: Vec<u32> =
        feed.queries.iter().map(|query| timed_match(&*lane.index, query)).collect();
    let alone = percentiles(&mut samples);
    let readers = measure_readers(feed, &*lane.index, options.readers_max, options.seconds);
    lane.stop();

    let (write_second_half, _) = measure_second_half(feed, make(), false);
    let (write_beside_reader, beside) = measure_second_half(feed, make(), true);
    let mut open_loop = vec![measure_open_loop(feed, make(), 0.0)];
    if options.window_s > 0.0 {
        open_loop.push(measure_open_loop(feed, make(), options.window_s));
    }
    json!({
        "index": name,
        "checksum": {"depths": depths, "scored": scored, "read": read},
        "write": write,
        "failed_updates": failed,
        "memory": {"held_blocks": feed.held_blocks(), "heap_bytes": heap,
                   "heap_bytes_per_held_block": heap as f64 / feed.held_blocks() as f64},
        "query_loop": query_loop,
        "query_loop_unread": query_loop_unread,
        "query_alone": alone,
        "query_beside_writer": beside,
        "write_second_half": write_second_half,
        "write_beside_reader": write_beside_reader,
        "readers": readers,
        "open_loop": open_loop,
    })
}
