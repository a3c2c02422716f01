//! Reads operation files: docs/bench-format.md, version 1.

use xxhash_rust::xxh3::xxh3_64;

const HEADER_BYTES: usize = 64;
const OP_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Query,
    Stored,
    Removed,
    Cleared,
}

pub struct Op {
    pub time_ns: u64,
    pub parent: Option<u64>,
    pub rank: u32,
    pub kind: Kind,
    /// Where its words are in `Ops::words`.
    pub begin: usize,
    pub end: usize,
}

pub struct Ops {
    pub block_tokens: u32,
    pub list: Vec<Op>,
    pub words: Vec<u64>,
}

impl Ops {
    pub fn words_of(&self, op: &Op) -> &[u64] {
        &self.words[op.begin..op.end]
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn read(path: &str) -> Result<Ops, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    parse(&bytes).map_err(|e| format!("{path}: {e}"))
}

fn parse(bytes: &[u8]) -> Result<Ops, String> {
    if bytes.len() < HEADER_BYTES || &bytes[..8] != b"KVROPS\x1a\n" {
        return Err("not an operation file".into());
    }
    if u32_at(bytes, 8) != 1 {
        return Err(format!("version {}, not 1", u32_at(bytes, 8)));
    }
    let body = &bytes[HEADER_BYTES..];
    if xxh3_64(&bytes[..56]) != u64_at(bytes, 56) || xxh3_64(body) != u64_at(bytes, 48) {
        return Err("a checksum does not match".into());
    }
    let count = u64_at(bytes, 32) as usize;
    let words: Vec<u64> = body[count * OP_BYTES..]
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let mut list = Vec::with_capacity(count);
    let mut begin = 0;
    for (i, record) in body[..count * OP_BYTES].chunks_exact(OP_BYTES).enumerate() {
        let kind = match record[24] {
            0 => Kind::Query,
            1 => Kind::Stored,
            2 => Kind::Removed,
            3 => Kind::Cleared,
            other => return Err(format!("operation {i}: unknown kind {other}")),
        };
        let blocks = u32_at(record, 20) as usize;
        let end = begin + if kind == Kind::Stored { 2 * blocks } else { blocks };
        if end > words.len() {
            return Err(format!("operation {i}: more blocks than the file has"));
        }
        list.push(Op {
            time_ns: u64_at(record, 0),
            parent: (record[25] == 1).then(|| u64_at(record, 8)),
            rank: u32_at(record, 16),
            kind,
            begin,
            end,
        });
        begin = end;
    }
    Ok(Ops { block_tokens: u32_at(bytes, 24), list, words })
}
