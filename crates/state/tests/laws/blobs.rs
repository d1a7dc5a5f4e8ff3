//! Laws of values of variable size: whatever is updated, passed on, sealed, sent to another process
//! and merged, in whatever order, each row holds what a sequential run over its inputs holds; and
//! merging into the same rows again and again leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::*;

use crate::support::Random;

const WANTED: [(u32, Counted); 5] = [
    (1, Counted::Elements),
    (3, Counted::Elements),
    (2, Counted::Lesser),
    (3, Counted::Keys),
    // All that come.
    (u32::MAX, Counted::Elements),
];

/// Where some kinds stand among [`kinds`].
const CHAIN: usize = WANTED.len() + 1;
const FREQUENT: usize = CHAIN + 1;
const SET: usize = FREQUENT + 1;

fn kinds() -> Vec<ValueKind> {
    let best = WANTED.map(|(limit, counted)| ValueKind::Best(Wanted { limit, counted }));
    let others = [
        ValueKind::List,
        ValueKind::Chain,
        ValueKind::Frequent,
        ValueKind::Set,
        ValueKind::Registers,
        ValueKind::Histogram,
        ValueKind::MaxBytes,
        ValueKind::MinBytes,
    ];
    best.into_iter().chain(others).collect()
}

fn layout() -> Arc<RowLayout> {
    layout_of(&kinds())
}

fn layout_of(kinds: &[ValueKind]) -> Arc<RowLayout> {
    let values: Vec<_> = kinds.iter().map(|kind| (*kind, true)).collect();
    Arc::new(RowLayout::new(1, vec![], &values))
}

/// An input: a sort key, and what is behind it.
type Element = (String, String);

fn element((key, rest): &Element) -> Vec<u8> {
    [&(key.len() as u32).to_le_bytes()[..], key.as_bytes(), rest.as_bytes()].concat()
}

/// The same for a set: its value is the sort key, and what is behind that says in which order.
fn valued((key, rest): &Element) -> Vec<u8> {
    [rest.as_bytes(), key.as_bytes(), &(key.len() as u32).to_le_bytes()].concat()
}

fn random_element(random: &mut Random) -> Element {
    let key = format!("{:02}", random.below(12));
    let rest = format!("{:06}{}", random.below(1 << 20), "z".repeat(random.below(60) as usize));
    (key, rest)
}

struct Tools(ChunkPool, Scratch);

fn tools(layout: &RowLayout) -> Tools {
    Tools(ChunkPool::new(layout.row_words(), 0, None), Scratch::default())
}

fn update(table: &mut Table, rows: &[(u64, Element)], append: bool, tools: &mut Tools) {
    update_values(table, &layout(), rows, append, tools);
}

/// The same of a table of this layout.
fn update_values(
    table: &mut Table,
    layout: &RowLayout,
    rows: &[(u64, Element)],
    append: bool,
    tools: &mut Tools,
) {
    for rows in rows.chunks(BLOCK_ROWS) {
        let words: Vec<u64> = rows.iter().map(|row| row.0).collect();
        let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
        let elements: Vec<Vec<u8>> = rows.iter().map(|row| element(&row.1)).collect();
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
        let mut block = match append {
            true => table.append(&keys, &mut tools.0, &mut tools.1),
            false => table.update(&keys, &mut tools.0, &mut tools.1),
        };
        for slot in layout.values() {
            let number = |k: usize| rows[k].1.1[..6].parse::<u32>().unwrap();
            match slot.kind {
                ValueKind::MinBytes | ValueKind::MaxBytes => {
                    block.extreme_bytes(*slot, None, |k| &elements[k]);
                }
                ValueKind::Registers => {
                    block.blob_words(*slot, None, |k| hash_word(number(k).into()));
                }
                ValueKind::Histogram => {
                    block.blob_words(*slot, None, |k| bucket_of(f64::from(number(k))).into());
                }
                ValueKind::Set => {
                    let valued: Vec<Vec<u8>> = rows.iter().map(|row| valued(&row.1)).collect();
                    block.blob_bytes(*slot, None, |k| &valued[k]);
                }
                // Elements that cannot enter by their sort keys need not be there.
                ValueKind::Best(_) if rows.len() % 2 == 0 => {
                    let mut entering = Vec::new();
                    block.entering(*slot, None, |k| rows[k].1.0.as_bytes(), &mut entering);
                    block.blob_bytes(*slot, Some(&entering), |k| &elements[k]);
                }
                _ => block.blob_bytes(*slot, None, |k| &elements[k]),
            }
        }
    }
}

/// What a row holds, value by value, in plain form.
fn plain(rows: &RowsRef<'_>, row: usize) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes[4..].to_vec()).unwrap();
    let plain = |slot: &ValueSlot| {
        let word = rows.word(row, slot.word);
        let bytes = if slot.kind.is_blob() { blob_bytes(word, rows.arena()) } else { &[] };
        match slot.kind {
            ValueKind::Best(wanted) => {
                let best = best_elements(wanted, bytes);
                let line = |(rank, element): &(u64, &[u8])| format!("{rank} {}", text(element));
                best.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            ValueKind::List => {
                let mut all: Vec<String> = list_elements(bytes).map(text).collect();
                all.sort();
                all.join("\n")
            }
            ValueKind::Chain => {
                let elements = chain_elements(word, rows.arena(), 0);
                let mut all: Vec<String> = elements.map(|(element, _)| text(element)).collect();
                assert_eq!(all.len(), chain_size(word, rows.arena()).0);
                all.sort();
                all.join("\n")
            }
            ValueKind::Set => {
                let text = |e: &[u8]| String::from_utf8(e[..e.len() - 4].to_vec()).unwrap();
                set_elements(bytes).into_iter().map(|e| text(e) + "\n").collect()
            }
            // The first eight bytes stand for the number that was drawn.
            ValueKind::Frequent => {
                let text = |value| std::str::from_utf8(value).unwrap();
                let values = frequent_values(bytes).into_iter();
                values.map(|(count, value)| format!("{count} {}\n", text(value))).collect()
            }
            ValueKind::Registers => registers_estimate(bytes).to_string(),
            ValueKind::Histogram => {
                let at = [0.0, 0.1, 0.5, 0.9, 1.0].map(|p| histogram_quantile(bytes, p));
                format!("{at:?}")
            }
            _ => text(read_bytes(word, rows.arena()).unwrap()),
        }
    };
    rows.layout().values().iter().map(plain).collect()
}

fn read(table: &Table) -> BTreeMap<u64, Vec<String>> {
    let mut found = BTreeMap::new();
    for block in 0..table.scan_blocks() {
        let rows = table.scan(block);
        for row in 0..rows.len() {
            assert!(found.insert(rows.word(row, 0), plain(&rows, row)).is_none());
        }
    }
    found
}

/// What `Best` should hold, from its definition: how many elements come before each, by what is
/// counted.
fn best_of(elements: &[Element], limit: u32, counted: Counted) -> String {
    let mut sorted: Vec<&Element> = elements.iter().collect();
    sorted.sort();
    let rank = |at: usize| {
        let lesser = sorted.iter().filter(|other| other.0 < sorted[at].0);
        1 + match counted {
            Counted::Elements => at,
            Counted::Lesser => lesser.count(),
            Counted::Keys => {
                lesser.map(|other| &other.0).collect::<std::collections::BTreeSet<_>>().len()
            }
        }
    };
    let ranked = (0..sorted.len()).map(|at| (rank(at), sorted[at]));
    let lines = ranked.filter(|(rank, _)| *rank <= limit as usize);
    lines.map(|(rank, (key, rest))| format!("{rank} {key}{rest}")).collect::<Vec<_>>().join("\n")
}

/// What `Frequent` should hold of few values: how often each came, the most frequent first.
fn counts_of(elements: &[Element]) -> String {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for one in elements {
        *counts.entry(element(one)[8..].to_vec()).or_default() += 1;
    }
    let mut sorted: Vec<(u64, Vec<u8>)> = counts.into_iter().map(|(v, count)| (count, v)).collect();
    sorted.sort_by_key(|(count, value)| (std::cmp::Reverse(*count), value.clone()));
    let line = |(count, value): &(u64, Vec<u8>)| {
        format!("{count} {}\n", std::str::from_utf8(value).unwrap())
    };
    sorted.iter().map(line).collect()
}

/// What `Set` should hold, from its definition: of each key what comes first, in order.
fn firsts_of(elements: &[Element]) -> String {
    let mut firsts: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, rest) in elements {
        let first = firsts.entry(key).or_insert(rest);
        *first = (*first).min(rest);
    }
    let mut sorted: Vec<String> =
        firsts.into_iter().map(|(key, rest)| format!("{rest}{key}\n")).collect();
    sorted.sort();
    sorted.concat()
}

fn send(segment: &Segment, leader: &mut Table, tools: &mut Tools) {
    let copy = Arena::from_words(segment.arena().all_words().to_vec());
    for run in segment.runs(&layout(), 100) {
        leader.merge_words(run, &copy, &mut tools.0, &mut tools.1).unwrap();
    }
}

/// Any division of the inputs among any number of tables, merged in any order and grouping, within
/// the process or from another one, is the sequential run; and that is what the definitions say.
#[test]
fn merging_is_the_sequential_run() {
    let layout = layout();
    let mut most = 0;
    for seed in 1..60_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (keys, count) = ([1, 5, 300][random.below(3) as usize], 1 + random.below(1_500));
        let rows: Vec<(u64, Element)> =
            (0..count).map(|_| (random.below(keys), random_element(&mut random))).collect();
        let mut tools = tools(&layout);
        let mut sequential = Table::new(layout.clone());
        update(&mut sequential, &rows, false, &mut tools);
        let expected = read(&sequential);
        let mut by_key: BTreeMap<u64, Vec<Element>> = BTreeMap::new();
        rows.iter().for_each(|row| by_key.entry(row.0).or_default().push(row.1.clone()));
        for (key, elements) in &by_key {
            for (value, (limit, counted)) in WANTED.iter().enumerate() {
                assert_eq!(expected[key][value], best_of(elements, *limit, *counted));
            }
            let mut all: Vec<String> =
                elements.iter().map(|(key, rest)| key.clone() + rest).collect();
            all.sort();
            assert_eq!(expected[key][CHAIN], all.join("\n"));
            assert_eq!(expected[key][FREQUENT], counts_of(elements));
            assert_eq!(expected[key][SET], firsts_of(elements));
            most = most.max(elements.len());
        }

        let mut parts: Vec<Vec<(u64, Element)>> = vec![vec![]; 1 + random.below(6) as usize];
        for row in rows {
            let part = random.below(parts.len() as u64) as usize;
            parts[part].push(row);
        }
        // Merged two at a time, whichever, until one is left: any order and grouping.
        let mut tables: Vec<Table> = Vec::new();
        for part in &parts {
            let mut table = Table::new(layout.clone());
            update(&mut table, part, random.below(3) == 0, &mut tools);
            tables.push(table);
        }
        // Neutral: one that holds nothing.
        tables.push(Table::new(layout.clone()));
        while tables.len() > 1 {
            let from = random.below(tables.len() as u64) as usize;
            let segment = tables.swap_remove(from).seal();
            let to = random.below(tables.len() as u64) as usize;
            // One with rows that were appended has keys twice, and takes nothing in.
            let mut into = Table::new(layout.clone());
            let other = tables[to].seal();
            for segment in [other, segment] {
                match random.below(2) {
                    0 => send(&segment, &mut into, &mut tools),
                    _ => {
                        into.merge(&segment, &mut tools.0, &mut tools.1);
                    }
                }
            }
            tables[to] = into;
        }
        assert_eq!(read(&tables[0]), expected, "seed {seed}");
    }
    assert!(most > 1_000);
}

/// A row that other rows are merged into ten thousand times takes about what it holds.
#[test]
fn merging_again_and_again_leaves_nothing_behind() {
    // Nothing of a chain is ever left behind.
    let others: Vec<_> = kinds().into_iter().filter(|kind| *kind != ValueKind::Chain).collect();
    let layout = layout_of(&others);
    let mut tools = tools(&layout);
    let mut random = Random(7);
    let mut table = Table::new(layout.clone());
    let mut compacted = 0;
    for _ in 0..10_000 {
        let rows: Vec<_> = (0..4).map(|key| (key, random_element(&mut random))).collect();
        let mut other = Table::new(layout.clone());
        update_values(&mut other, &layout, &rows, false, &mut tools);
        let before = table.live_bytes();
        table.merge(&other.seal(), &mut tools.0, &mut tools.1);
        compacted += usize::from(table.live_bytes() < before);
    }
    // A list has 10,000 elements of up to 72 bytes for each of four rows; nothing else is large.
    let held: usize = read(&table).values().flatten().map(String::len).sum();
    assert!(compacted > 0);
    assert!(table.live_bytes() < 5 * held, "{} bytes for {held}", table.live_bytes());
}

/// Room for what comes next is reserved: no table grows by more than it says.
#[test]
fn growth_is_known_before() {
    let layout = layout();
    for seed in 1..40_u64 {
        let mut tools = tools(&layout);
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut table = Table::new(layout.clone());
        let keys = [1, 30, 2_000][random.below(3) as usize];
        for _ in 0..20 {
            let rows: Vec<_> = (0..1 + random.below(400))
                .map(|_| (random.below(keys), random_element(&mut random)))
                .collect();
            // Ten values keep the bytes of each element.
            let texts: usize = rows.iter().map(|(_, e)| 10 * element(e).len()).sum();
            let load = Load { rows: rows.len(), text_bytes: texts };
            let most = table.bytes() + table.growth_bytes(load);
            update(&mut table, &rows, false, &mut tools);
            assert!(table.bytes() <= most, "seed {seed}: {} > {most}", table.bytes());
        }
    }
}

/// Whatever a peer writes into rows and blobs is refused or merged; nothing is read outside of the
/// arena, and what is there stays readable.
#[test]
fn damaged_blobs_do_no_harm() {
    let layout = layout();
    let mut tools = tools(&layout);
    let mut random = Random(11);
    let mut table = Table::new(layout.clone());
    let rows: Vec<_> = (0..300).map(|_| (random.below(8), random_element(&mut random))).collect();
    update(&mut table, &rows, false, &mut tools);
    let segment = table.seal();
    let words = segment.runs(&layout, 50).next().unwrap().to_vec();
    let sound = segment.arena().all_words().to_vec();
    let (mut refused, mut merged) = (0, 0);
    for _ in 0..20_000 {
        let (mut words, mut arena) = (words.clone(), sound.clone());
        for _ in 0..1 + random.below(3) {
            let damaged = if random.below(4) == 0 { &mut words } else { &mut arena };
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = match random.below(3) {
                0 => random.below(1 << 20),
                1 => u64::MAX - random.below(9),
                _ => damaged[at] ^ 1 << random.below(64),
            };
        }
        let mut leader = Table::new(layout.clone());
        let arena = Arena::from_words(arena);
        match leader.merge_words(&words, &arena, &mut tools.0, &mut tools.1) {
            Err(_) => refused += 1,
            Ok(()) => merged += 1,
        }
        // Twice: merging goes another way where there is something.
        let _ = leader.merge_words(&words, &arena, &mut tools.0, &mut tools.1);
        for block in 0..leader.scan_blocks() {
            let rows = leader.scan(block);
            for row in 0..rows.len() {
                for slot in layout.values().iter().filter(|slot| slot.kind.has_any_size()) {
                    let word = rows.word(row, slot.word);
                    if slot.kind == ValueKind::Chain {
                        let count = chain_elements(word, rows.arena(), 0).count();
                        assert_eq!(count, chain_size(word, rows.arena()).0);
                        continue;
                    }
                    let bytes = blob_bytes(word, rows.arena());
                    match slot.kind {
                        ValueKind::Best(wanted) => drop(best_elements(wanted, bytes)),
                        ValueKind::List => drop(list_elements(bytes).count()),
                        ValueKind::Set => drop(set_elements(bytes)),
                        ValueKind::Frequent => drop(frequent_values(bytes)),
                        ValueKind::Registers => drop(registers_estimate(bytes)),
                        _ => drop(histogram_quantile(bytes, 0.5)),
                    }
                }
            }
        }
    }
    assert!(refused > 3_000 && merged > 3_000, "{refused} refused, {merged} merged");
}

/// Of rows that have nothing but chains, too, growth is known before; and it is little beside what
/// a long chain has.
#[test]
fn growth_of_chains_is_known_before() {
    let layout = layout_of(&[ValueKind::Chain]);
    for keys in [1, 3, 200, 5_000] {
        let mut tools = tools(&layout);
        let mut random = Random(keys);
        let mut table = Table::new(layout.clone());
        for _ in 0..300 {
            let rows: Vec<_> = (0..1 + random.below(400))
                .map(|_| (random.below(keys), random_element(&mut random)))
                .collect();
            let texts: usize = rows.iter().map(|(_, e)| element(e).len()).sum();
            let growth = table.growth_bytes(Load { rows: rows.len(), text_bytes: texts });
            let most = table.bytes() + growth;
            update_values(&mut table, &layout, &rows, false, &mut tools);
            assert!(table.bytes() <= most, "{keys} keys: {} > {most}", table.bytes());
        }
        let (held, all) = (table.live_bytes(), table.bytes());
        assert!(keys > 1 || all < held + held / 2 + (1 << 16), "{all} for {held}");
    }
}
