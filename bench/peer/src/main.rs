//! Feeds an operation file to an index of the dynamo-kv-router crate and prints, as JSON, what
//! `index_ops replay --json` prints of kvroute's.

mod measure;
mod op_file;

use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer};

const USAGE: &str = "usage: kvroute-bench-peer tree|positional FILE [--seconds S] [--readers N] [--window S]";

/// The jump the crate's own benchmark uses.
const JUMP: usize = 8;

fn run() -> Result<String, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, path, flags @ ..] = args.as_slice() else {
        return Err(USAGE.into());
    };
    let mut options = measure::Options { seconds: 1.0, readers_max: 1, window_s: 0.0 };
    for flag in flags.chunks(2) {
        let [name, value] = flag else { return Err(USAGE.into()) };
        let bad = |_| format!("{name}: {value} is no number");
        match name.as_str() {
            "--seconds" => options.seconds = value.parse().map_err(bad)?,
            "--window" => options.window_s = value.parse().map_err(bad)?,
            "--readers" => {
                options.readers_max =
                    value.parse().map_err(|_| format!("--readers: {value} is no count"))?
            }
            _ => return Err(USAGE.into()),
        }
    }
    let feed = measure::Feed::new(op_file::read(path)?);
    if feed.is_empty() {
        return Err(format!("{path}: nothing to measure without a query and an update"));
    }
    let result = match kind.as_str() {
        "tree" => measure::replay("tree", &feed, &options, ConcurrentRadixTreeCompressed::new),
        "positional" => {
            measure::replay("positional", &feed, &options, || PositionalIndexer::new(JUMP))
        }
        _ => return Err(USAGE.into()),
    };
    Ok(result.to_string())
}

fn main() {
    match run() {
        Ok(line) => println!("{line}"),
        Err(error) => {
            eprintln!("kvroute-bench-peer: {error}");
            std::process::exit(1);
        }
    }
}
