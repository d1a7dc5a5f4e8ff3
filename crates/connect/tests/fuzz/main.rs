//! Fuzz targets for what is read from files: good files, mutated, a fixed number of each, or as
//! many as `MILLSTREAM_FUZZ_SECONDS` allows (`make fuzz`). A failure prints the input.
//! `MILLSTREAM_SEED` starts from another seed.

mod allocations;
mod columnar;

use std::time::{Duration, Instant};

use millstream_connect::{fuzz_arrow, fuzz_csv, fuzz_http, fuzz_ndjson, fuzz_parquet};

/// Inputs of a target in the short form.
const INPUTS: u64 = 4_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The tests' own source of chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % end.max(1) as u64) as usize
    }
}

/// Changes a few places: bytes are changed, go, or are repeated, and pieces are put in.
fn mutate(data: &mut Vec<u8>, pieces: &[&[u8]], chance: &mut Chance) {
    for _ in 0..chance.below(8) {
        let at = chance.below(data.len() + 1);
        match chance.below(6) {
            0 if at < data.len() => data[at] = chance.below(256) as u8,
            1 if at < data.len() => drop(data.remove(at)),
            2 if at < data.len() => {
                let end = (at + 1 + chance.below(40)).min(data.len());
                let part = data[at..end].to_vec();
                let to = chance.below(data.len() + 1);
                data.splice(to..to, part);
            }
            _ => drop(data.splice(at..at, pieces[chance.below(pieces.len())].iter().copied())),
        }
    }
}

/// Changes a few places of what has its lengths and offsets in numbers.
fn damage(data: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(4) {
        let at = chance.below(data.len());
        match chance.below(8) {
            0 => data[at] = 0xff,
            1 => data[at] = 0,
            2 => data[at] = chance.below(256) as u8,
            3 => data[at] = data[at].wrapping_add(1),
            4 => data[at] = data[at].wrapping_sub(1),
            5 => {
                let end = (at + 1 + chance.below(12)).min(data.len());
                let to = chance.below(data.len() - (end - at) + 1);
                data.copy_within(at..end, to);
            }
            6 if chance.below(8) == 0 => data.truncate(at.max(1)),
            _ => data[at] ^= 1 << chance.below(8),
        }
    }
}

/// Prints the input of a target that panics.
struct Input<'a>(&'a [u8]);

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

fn run(target: fn(&[u8]), corpus: &[&[u8]], pieces: &[&[u8]]) {
    run_on(target, corpus, |data, chance| mutate(data, pieces, chance));
}

fn run_on(target: impl Fn(&[u8]), corpus: &[&[u8]], change: impl Fn(&mut Vec<u8>, &mut Chance)) {
    let mut chance = Chance(number("MILLSTREAM_SEED").unwrap_or(1));
    let end = number("MILLSTREAM_FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let mut inputs = 0;
    while end.map_or(inputs < INPUTS, |end| Instant::now() < end) {
        let mut data = corpus[chance.below(corpus.len())].to_vec();
        // The first ones as they are.
        if inputs >= corpus.len() as u64 {
            change(&mut data, &mut chance);
        } else {
            data = corpus[inputs as usize].to_vec();
        }
        let input = Input(&data);
        target(&data);
        let most = allocations::most_since_the_last_look();
        assert!(most <= allocations::MOST, "room was made for {most} bytes at once");
        drop(input);
        inputs += 1;
    }
}

/// `target` says whether what it was given could be read.
fn run_columnar(target: fn(&[u8]) -> bool, files: &[Vec<u8>]) {
    assert!(files.iter().all(|file| target(file)), "a good file cannot be read");
    let corpus: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    run_on(
        |data| _ = target(data),
        &corpus,
        |data, chance| {
            data[0] = chance.below(256) as u8;
            damage(data, chance);
        },
    );
}

#[test]
fn parquet() {
    run_columnar(fuzz_parquet, &columnar::parquet_files());
}

#[test]
fn arrow() {
    run_columnar(fuzz_arrow, &columnar::arrow_files());
}

#[test]
fn csv() {
    run(
        fuzz_csv,
        &[
            b"\x00\x80a,b,c,d,e,f,g,h,i,j\n1,x,1.5,t,2000-01-01,1.1,aGk=,2000-01-01,00:00,1\n",
            b"\x04\x80j,i,h,g,f,e,d,c,b,a\n1,00:00:01.5,2000-01-01,,,,,,\"\"\"\n\",-9\n\r\n,,,,,,,\n",
            b"\x78\x80#c\n1,\"x\",inf,0,9999-12-31T23:59:59.999999999Z,-1e5,,,23:59:59,255\nNULL\n",
            b"\x48\x80,,,,,,,,,1\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",1\n\xff,\xff\n\"",
            b"\x02\x80\"a\"\"\n,\"\n\r\n\xef\xbb\xbf",
        ],
        &[b",", b"\n", b"\"", b"\r\n", b"#", b"-", b"e999", b"NULL", b"\xff", b"\t", b"2000-01-01"],
    );
}

#[test]
fn http() {
    run(
        fuzz_http,
        &[
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n1\n2POST / HTTP/1.0\r\n\
              content-length: 0\r\nConnection: keep-alive\r\n\r\n",
            b"POST /?a HTTP/1.1\r\nhost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\
              Expect: 100-continue\r\nContent-Encoding: identity\r\n\r\n1",
            b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: b\r\nTransfer-Encoding: chunked\r\n\r\n",
        ],
        &[
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b" ",
            b"\t",
            b":",
            b",",
            b"\0",
            b"\xc3\xa9",
            b"\xff",
            b"0",
            b"99999999999999999999",
            b"HTTP/1.1",
            b"\r\nContent-Length: 7",
            b"\r\nTransfer-Encoding: chunked",
            b"\r\nHost: a",
            b"POST / HTTP/1.1\r\n",
        ],
    );
}

#[test]
fn ndjson() {
    run(
        fuzz_ndjson,
        &[
            b"",
            br#"00{"a":1,"b":"x","c":1.5,"d":true,"e":"2000-01-01 00:00:00.5","f":1.1,"g":"aGk=","h":7}
{"I":2.5,"n":"2000-01-01","b":"","a":-2}

{}
"#,
            br#"10{"j":{"a":1,"b":"x","c":[true,null]},"k":[{"a":1},null,{"c":[],"a":2}]}
{"l":{"x":[1,2],"y":null},"m":null,"x":[[{"y":"\ud800"}]]}
{"l":{},"k":[],"j":null}
"#,
            b"1\xaa{\"A\":1,\"a\":2}\n{\"A\":1,\"A\":2}\n{\"i\":\"NaN\",\"c\":\"Infinity\"}\n\xff\n{}",
            br#"00{ "a" : 1 , "j" : { "a" : 3 } }
{ "a" : 12345678901 , "x" : [ ] , "j" : { "a" : 3 } }
{ "a" : 2 , "j" : { "a" : 4 } , "b" : "\u00e9\n" }"#,
        ],
        &[
            b",",
            b"\n",
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b"\"",
            b"\\",
            b"\\u00e9",
            b"\\ud800",
            b"null",
            b" ",
            b"\"a\":",
            b"\"A\":1,",
            b"\"j\":{",
            b"\"k\":[",
            b"-",
            b"0",
            b"e999",
            b".5",
            b"true",
            b"\xc3\xa9",
            b"\xff",
            b"99999999999999999999",
            b"{\"a\":1}\n",
            b"\"x\":[[[{}]]],",
            b"\t",
        ],
    );
}
