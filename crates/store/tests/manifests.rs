//! Manifests as bytes: round trips, damage of every kind, other versions.

use crate::common::{Random, manifest};
use millstream_store::{Error, FORMAT, Manifest, StateFile};
use xxhash_rust::xxh3::xxh3_64;

fn sample() -> Manifest {
    let file = |number: u64| StateFile {
        name: format!("state/{number:010}-0-o.window-5f3a"),
        bytes: 1 << 40,
        xxh3: "0123456789abcdef".into(),
        rows: 7,
        part: 0,
        partitions: (0, 256),
        slices: (number == 12).then(|| vec![-3, 0, 7]),
    };
    manifest(17, "5f3a", vec![file(12), file(17)])
}

/// The JSON with a valid last line.
fn sealed(json: &str) -> Vec<u8> {
    format!("{json}{{\"xxh3\":\"{:016x}\"}}\n", xxh3_64(json.as_bytes())).into_bytes()
}

fn json(manifest: &Manifest) -> String {
    serde_json::to_string(manifest).unwrap()
}

fn load(bytes: &[u8]) -> Result<Manifest, Error> {
    Manifest::from_bytes("1/manifest-0000000017.json", bytes)
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let sample = sample();
    assert_eq!(load(&sample.to_bytes()), Ok(sample.clone()));
    assert_eq!((sample.bytes(), sample.new_bytes()), (2 << 40, 1 << 40));
    let text = String::from_utf8(sample.to_bytes()).unwrap();
    let last = text.lines().last().unwrap();
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    assert_eq!(values.next().unwrap().unwrap()["checkpoint"], 17, "readable as JSON, line by line");
    assert_eq!(values.next().unwrap().unwrap().to_string(), last);
    assert!(values.next().is_none());
}

/// What checkpoints of format 1 look like. It must be readable for ever: do not change this text.
const FORMAT_1: &str = r#"{
  "format": 1, "program": "0.1.0", "checkpoint": 3, "attempt": "5f3a", "job": "INSERT …",
  "time_us": 1700000010000000, "started_us": 1700000000000000,
  "sources": { "t": { "low_us": -1, "splits": {
    "a.csv": { "position": [10, 2], "chunks": 1, "records": 2, "watermark_us": -9223372036854775808,
      "clock_us": 5, "number": 0, "ended": false } } } },
  "stages": [{ "names": ["o.window"], "identity": { "keys": ["k BIGINT"] }, "frontier_us": 9,
    "files": [{ "name": "state/0000000003-0-x-5f3a", "bytes": 1, "xxh3": "0123456789abcdef",
                "rows": 1, "partitions": [0, 256] }] }],
  "outputs": [{ "name": "o" }]
}
"#;

#[test]
fn fields_that_were_added_have_defaults() {
    let manifest = load(&sealed(FORMAT_1)).unwrap();
    assert_eq!((manifest.checkpoint, manifest.ended), (3, false));
    let split = &manifest.sources["t"].splits["a.csv"];
    assert_eq!((split.watermark_us, split.position.0.clone()), (i64::MIN, vec![10, 2]));
    assert_eq!((manifest.outputs[0].limit, manifest.outputs[0].offset), (None, 0));
    assert_eq!(load(&manifest.to_bytes()), Ok(manifest));
}

#[test]
fn a_manifest_of_a_later_format_is_refused_with_its_version() {
    let later = json(&sample()).replace("\"format\":2", "\"format\":3").replace("0.1.0", "7.5");
    for text in [later.as_str(), r#"{"format": 3, "program": "7.5", "quite": ["different"]}"#] {
        let error = load(&sealed(text)).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        let message = error.to_string();
        let says = format!("its format is 3, and this program reads up to {FORMAT}");
        assert!(message.contains(&says) && message.contains("version 7.5"), "{message}");
    }
}

#[test]
fn unknown_fields_are_refused_and_named() {
    let text = json(&sample());
    let counters = text.find("\"counters\"").unwrap();
    let mut objects = 0;
    for (at, _) in text.match_indices('{') {
        let is_map = |map: &str| text[..at].ends_with(&format!("\"{map}\":"));
        let maps = ["identity", "layout", "sources", "splits", "lookups", "s"];
        if at > counters || maps.iter().any(|map| is_map(map)) {
            continue;
        }
        let text = format!("{}{{\"$new\":1,{}", &text[..at], &text[at + 1..]);
        let error = load(&sealed(&text)).unwrap_err();
        let is_named = error.to_string().contains("unknown field `$new`");
        assert!(matches!(error, Error::Foreign { .. }) && is_named, "{error}");
        objects += 1;
    }
    assert_eq!(objects, 11);
    let text = text.replacen("\"chunks\"", "\"new\":1,\"chunks\"", 1);
    let message = load(&sealed(&text)).unwrap_err().to_string();
    assert!(message.contains("unknown field `new`"), "{message}");
}

fn is_damaged(bytes: &[u8], case: &str) {
    match load(bytes) {
        Err(Error::Damaged { object, message, .. }) => {
            assert!(object.contains("manifest-0000000017") && !message.is_empty(), "{case}");
        }
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = sample().to_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            is_damaged(&bytes, &format!("bit {bit} of byte {at}"));
        }
    }
}

#[test]
fn every_cut_and_every_torn_end_is_found() {
    let bytes = sample().to_bytes();
    for length in 0..bytes.len() {
        is_damaged(&bytes[..length], &format!("the first {length} bytes"));
        is_damaged(&bytes[length + 1..], &format!("without the first {} bytes", length + 1));
        let mut torn = bytes[..length].to_vec();
        torn.resize(bytes.len(), 0);
        is_damaged(&torn, &format!("zeros from byte {length}"));
        let mut longer = bytes.clone();
        longer.extend(&bytes[length..]);
        is_damaged(&longer, "appended to");
    }
    is_damaged(&[bytes.clone(), b"\n".to_vec()].concat(), "a line more");
    is_damaged(&sealed(""), "nothing but a last line");
}

#[test]
fn random_changes_never_load() {
    let (bytes, mut random) = (sample().to_bytes(), Random(1));
    for case in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..=random.below(3) {
            let (a, b) = (random.below(changed.len() as u64), random.below(changed.len() as u64));
            let (a, b) = (a.min(b) as usize, a.max(b) as usize);
            match random.below(4) {
                0 => changed[a] = random.below(256) as u8,
                1 => changed[a..b].fill(random.below(256) as u8),
                2 => drop(changed.drain(a..b.min(a + 40))),
                _ => changed.insert(a, random.below(256) as u8),
            }
            if changed.is_empty() {
                break;
            }
        }
        if changed != bytes {
            is_damaged(&changed, &format!("case {case}"));
        }
    }
}

#[test]
fn a_valid_checksum_over_something_else_is_no_manifest() {
    for text in ["{}", "[]", "x", "{\"format\":\"1\"}", "{\"format\":-1}", &"[".repeat(100_000)] {
        is_damaged(&sealed(text), text);
    }
    // Of the right format, and not its fields.
    let error = load(&sealed("{\"format\":1,\"program\":\"0.2\"}")).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}
