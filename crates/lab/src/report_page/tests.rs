//! Tests of the page: what it shows for given lines, and what it must not show.

use serde_json::{Value, json};

use super::entry::Entry;
use super::{Placed, render};

fn line(changes: Value) -> Value {
    let mut line = json!({
        "engine": "millstream", "workload": "ysb", "records": 1000, "processes": 2, "workers": 1, "fabric": "shm",
        "exchange": "late-merge", "zipf": null, "mrec_per_s": 10.0, "ok": true, "command": "millstream bench ysb",
        "date": "2024-05-01T12:00:00Z",
        "machine": {"processor": "P", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6.1"},
    });
    let (Some(fields), Value::Object(changes)) = (line.as_object_mut(), changes) else {
        panic!("two objects");
    };
    fields.extend(changes);
    line
}

fn page(lines: &[Value]) -> String {
    let placed = lines.iter().enumerate().map(|(i, line)| Placed {
        place: format!("lines.jsonl:{}", i + 1),
        line: Entry::parse(&line.to_string()).expect("a good line"),
    });
    render(&placed.collect::<Vec<_>>())
}

/// The titles of all marks.
fn titles(page: &str) -> Vec<&str> {
    page.split("<title>").skip(2).filter_map(|rest| Some(rest.split_once("</title>")?.0)).collect()
}

#[test]
fn repeated_lines_are_one_bar_with_their_median() {
    let lines = [12.0, 10.0, 17.0].map(|rate| line(json!({"mrec_per_s": rate})));
    assert_eq!(titles(&page(&lines)), ["2 × 1, late merge, shm: 12 (10 to 17), 3 runs"]);
}

#[test]
fn runs_are_paired_in_the_order_of_their_dates() {
    let mut lines = Vec::new();
    for (second, ours, theirs) in [(2, 30.0, 10.0), (1, 10.0, 10.0), (3, 40.0, 20.0)] {
        let date = format!("2024-05-01T12:00:0{second}Z");
        lines.push(line(json!({"mrec_per_s": ours, "date": date})));
        lines.insert(
            0,
            line(json!({"mrec_per_s": theirs, "date": date, "exchange": "repartition"})),
        );
    }
    let page = page(&lines);
    assert!(page.contains("<td class=\"number\">2 (1 to 3), 3</td>"), "{page}");
}

#[test]
fn other_data_and_other_machines_are_not_mixed() {
    let mut other = line(json!({"mrec_per_s": 30.0}));
    other["machine"]["kernel"] = json!("6.2");
    let page = page(&[
        line(json!({})),
        line(json!({"records": 2000, "mrec_per_s": 20.0})),
        line(json!({"zipf": 1.0, "mrec_per_s": 40.0})),
        other,
    ]);
    let mut titles = titles(&page);
    titles.sort_unstable();
    let one = |rate| format!("2 × 1, late merge, shm: {rate}, 1 run");
    assert_eq!(
        titles,
        [&one(10), &one(20), &one(30), "exponent z = 1, late merge, shm: 40, 1 run"]
    );
    assert!(page.contains("kernel 6.1") && page.contains("kernel 6.2"));
}

#[test]
fn a_wrong_answer_is_named_and_not_drawn() {
    let page = page(&[line(json!({})), line(json!({"mrec_per_s": 99.0, "ok": false}))]);
    assert!(page.contains("lines.jsonl:2: refused"), "{page}");
    assert_eq!(titles(&page), ["2 × 1, late merge, shm: 10, 1 run"]);
}

#[test]
fn counts_and_the_hand_written_loop_have_their_places() {
    let one = |engine: &str, rate: f64| {
        line(json!({"engine": engine, "processes": 1, "mrec_per_s": rate}))
    };
    let counts = json!({"role": "repartition-sender", "instructions_per_record": 66.6,
        "d1_misses_per_record": 1.25, "ll_misses_per_record": 0.5});
    let page = page(&[one("handwritten", 20.0), one("millstream", 15.0), line(counts)]);
    assert!(page.contains("<td class=\"number\">0.75, 1</td>"), "{page}");
    for cell in ["repartition, sender", "66.6", "1.25", "0.5"] {
        assert!(page.contains(&format!(">{cell}</td>")), "{cell}");
    }
}

/// Lines of a model, and measured ones that it is compared with.
fn modelled(measured: [f64; 3]) -> Vec<Value> {
    let mut lines = Vec::new();
    for (processes, measured) in [1, 2, 4].into_iter().zip(measured) {
        let of = json!({"processes": processes, "mrec_per_s": measured});
        lines.push(line(of));
        lines.push(line(json!({"processes": processes, "fabric": "sim", "projection": true,
            "predicts": "shm", "mrec_per_s": 100.0})));
    }
    // Ten times as many records for ten times as many workers.
    lines.push(line(json!({"processes": 16, "workers": 10, "fabric": "sim", "projection": true,
        "records": 160_000, "mrec_per_s": 777.0})));
    lines
}

#[test]
fn a_projection_is_shown_only_if_the_model_was_right() {
    let title = "nodes = 16, late merge, sim: 777, 1 run";
    let right = page(&modelled([95.0, 100.0, 105.0]));
    assert!(titles(&right).contains(&title), "{right}");
    assert!(right.contains("Projection: ysb") && right.contains("computed, not measured"));
    for measured in [[95.0, 100.0, 80.0], [120.0, 100.0, 100.0], [0.0, 100.0, 100.0]] {
        let wrong = page(&modelled(measured));
        assert!(!wrong.contains("777") && wrong.contains("Not shown: ysb"), "{wrong}");
    }
    // What was right about other data, another exchange or other keys says nothing.
    for changes in
        [json!({"workload": "cm"}), json!({"exchange": "repartition"}), json!({"zipf": 1.0})]
    {
        let mut lines = modelled([100.0; 3]);
        let projected = lines.last_mut().and_then(Value::as_object_mut).expect("an object");
        projected.extend(changes.as_object().expect("one").clone());
        let other = page(&lines);
        assert!(!other.contains("777") && other.contains("Not shown"), "{other}");
    }
    let unchecked = page(&modelled([100.0; 3])[6..]);
    assert!(!unchecked.contains("777") && unchecked.contains("Not shown: ysb"));
}

#[test]
fn skewed_runs_have_ratios_too_and_mixed_commands_are_told() {
    let skewed = |changes: Value| {
        let mut line = line(json!({"zipf": 2.0}));
        line.as_object_mut().expect("an object").extend(changes.as_object().expect("one").clone());
        line
    };
    let page = page(&[
        skewed(json!({"mrec_per_s": 26.0})),
        skewed(json!({"exchange": "repartition", "mrec_per_s": 20.0, "command": "one"})),
        skewed(json!({"exchange": "repartition", "mrec_per_s": 20.0, "command": "two"})),
    ]);
    assert!(page.contains("<td class=\"number\">1.3, 1</td>"), "{page}");
    assert_eq!(page.matches("the lines of 2 different commands").count(), 1);
}

/// A line of the shuffle's benchmark, with the fields that are read.
fn shuffled(changes: Value) -> Value {
    let mut shuffle = line(json!({
        "bench": "shuffle", "design": "SEMQ/WR", "pattern": "repartition", "threads": 1,
        "message_bytes": 65536, "buffers": "fixed:2", "credit_every": 2, "compute_us": 0,
        "straggler_us": null, "own": "send", "tuples": 1000, "bytes_per_s": 2e9, "setup_seconds": 0.25,
    }));
    let (Some(fields), Value::Object(changes)) = (shuffle.as_object_mut(), changes) else {
        panic!("two objects");
    };
    fields.extend(changes);
    shuffle
}

#[test]
fn shuffles_are_compared_in_what_a_plot_shows() {
    let page = page(&[
        shuffled(json!({})),
        shuffled(json!({"bytes_per_s": 4e9})),
        shuffled(json!({"design": "MESQ/SR", "message_bytes": 4080, "bytes_per_s": 1e9})),
        shuffled(json!({"buffers": "adaptive:2:64", "bytes_per_s": 5e9})),
        shuffled(json!({"straggler_us": 50.0, "bytes_per_s": 6e9})),
        shuffled(json!({"credit_every": 1, "bytes_per_s": 7e9})),
        shuffled(json!({"threads": 2, "bytes_per_s": 8e9, "ok": false})),
    ]);
    let titles = titles(&page);
    for title in [
        "bytes of a message = 65536, SEMQ/WR: 3 (2 to 4), 2 runs",
        "bytes of a message = 4080, MESQ/SR: 1, 1 run",
        "messages after which credit is written back = 1, SEMQ/WR: 7, 1 run",
        "0, fixed:2: 3 (2 to 4), 2 runs",
        "0, adaptive:2:64: 5, 1 run",
        "SEMQ/WR, all alike: 3 (2 to 4), 2 runs",
        "SEMQ/WR, one of 50 us: 6, 1 run",
        "2 × 1, MESQ/SR: 250, 1 run",
    ] {
        assert!(titles.contains(&title), "{title}: {titles:#?}");
    }
    // What was about buffers is not drawn by length.
    assert_eq!(titles.iter().filter(|title| title.contains(": 5, ")).count(), 1, "{titles:#?}");
    assert!(page.contains("SEMQ/WR: repartition, 2 × 1, 65,536 B, f = 2, 1,000 tuples"));
    assert!(page.contains("lines.jsonl:7: refused, since the answer was wrong: shuffle SEMQ/WR"));
    assert!(!page.contains("<h3>Lines</h3>"), "there is no job");
}

#[test]
fn a_shuffle_without_sense_is_named() {
    for (name, value) in [
        ("design", json!("SEMQ")),
        ("pattern", json!("gossip")),
        ("threads", json!(0)),
        ("message_bytes", json!(-1)),
        ("bytes_per_s", json!(1e30)),
        ("straggler_us", json!("slow")),
        ("ok", json!(null)),
    ] {
        let text = shuffled(json!({name: value})).to_string();
        let error = Entry::parse(&text).expect_err(name);
        assert!(error.contains(&format!("field '{name}'")), "{error}");
    }
}

/// A line of TPC-H, with the fields that are read.
fn tpch(changes: Value) -> Value {
    let mut pair = line(json!({
        "bench": "tpch", "design": "SEMQ/WR", "query": 3, "scale": 1.0, "processes": 2,
        "tables": "memory", "compression": "lz4", "seconds": 2.0, "flight_seconds": 3.0,
    }));
    let (Some(fields), Value::Object(changes)) = (pair.as_object_mut(), changes) else {
        panic!("two objects");
    };
    fields.extend(changes);
    pair
}

#[test]
fn queries_are_compared_with_flight_by_design() {
    let page = page(&[
        tpch(json!({})),
        tpch(json!({"design": "MESQ/SR", "seconds": 4.0})),
        tpch(json!({"seconds": 1.0, "flight_seconds": 4.0})),
        tpch(json!({"query": 10, "compression": "none"})),
    ]);
    let titles = titles(&page);
    for title in [
        "3, Flight: 3 (3 to 4), 3 runs",
        "3, SEMQ/WR: 1.5 (1 to 2), 2 runs",
        "3, MESQ/SR: 4, 1 run",
        "3, SEMQ/WR: 2.75 (1.5 to 4), 2 runs",
        "3, MESQ/SR: 0.75, 1 run",
        "10, SEMQ/WR: 1.5, 1 run",
    ] {
        assert!(titles.contains(&title), "{title}: {titles:#?}");
    }
    assert!(page.contains("scale 1, 2 processes, tables in memory, compression lz4"));
    for (name, value) in
        [("seconds", json!(0)), ("query", json!(23)), ("scale", json!("big")), ("tables", json!(1))]
    {
        let error = Entry::parse(&tpch(json!({name: value})).to_string()).expect_err(name);
        assert!(error.contains(&format!("field '{name}'")), "{error}");
    }
}

/// Bytes of good lines changed, doubled and lost: what is still a line is drawn, nothing panics.
#[test]
fn mutated_lines_are_refused_or_drawn() {
    const LIKELY: &[u8] = b"0123456789.eE-+\"\\{}[]:,";
    let good = modelled([95.0, 100.0, 105.0]).into_iter().map(|line| line.to_string());
    let good: Vec<String> = good
        .chain([line(json!({"zipf": 0.5})).to_string(), shuffled(json!({})).to_string()])
        .chain([tpch(json!({})).to_string()])
        .chain([shuffled(json!({"straggler_us": 1, "buffers": "adaptive:2:4"})).to_string()])
        .collect();
    let mut random: u64 = 0x9E3779B97F4A7C15;
    let mut below = |n: usize| {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545F4914F6CDD1D) >> 33) as usize % n.max(1)
    };
    let mut read = Vec::new();
    for _ in 0..20_000 {
        let mut bytes = good[below(good.len())].clone().into_bytes();
        for _ in 0..1 + below(3) {
            let at = below(bytes.len());
            let byte = LIKELY[below(LIKELY.len())];
            match below(4) {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] = b' ' + below(95) as u8,
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(line) = Entry::parse(&text) {
            read.push(Placed { place: String::new(), line });
        }
    }
    assert!((1_000..19_000).contains(&read.len()), "{} of 20,000", read.len());
    for lines in read.chunks(50) {
        let page = render(lines);
        assert!(!page.contains("NaN") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    }
}

#[test]
fn nothing_in_a_line_becomes_markup() {
    let evil = "</title></svg><script>alert('x')</script>&\"\u{1b}[2J\u{202e}";
    let mut hostile = line(json!({"workload": evil, "command": evil}));
    hostile["machine"]["processor"] = json!(evil);
    hostile["machine"]["kernel"] = json!(evil);
    let page = page(&[hostile]);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert_eq!(page.matches("</svg>").count(), page.matches("<svg ").count());
}
