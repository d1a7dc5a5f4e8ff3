//! Finding or appending the rows of a block of keys. Every record passes through this code.

#[cfg(target_arch = "x86_64")]
use millstream_cpu::level;

use crate::memory::arena::Arena;
use crate::memory::hash::hash_each_word;
use crate::memory::log::BLOCK_ROWS;
use crate::memory::log::{ChunkPool, Log, RowId};
use crate::memory::prefetch::prefetch;
#[cfg(target_arch = "x86_64")]
use crate::table::hot::{MatchedRows, Others, frequent};
use crate::table::index::{Entrants, Index};
use crate::table::key::{Keys, NoVarKeys, VarKeys};
use crate::table::layout::RowLayout;
use crate::table::logs::{Ends, Joint, Kind, LogsMut, Rows, SingleLog};

/// Finds the rows of the keys or appends them, and lists their places.
pub(crate) fn find_or_append<V: VarKeys>(
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    index: &mut Index,
    mut logs: LogsMut<'_>,
    arena: &mut Arena,
    pool: &mut ChunkPool,
    places: &mut Vec<*mut u64>,
) {
    let rows = keys.rows(layout);
    logs.reserve(keys, rows, pool);
    index.reserve(rows, layout.has_word_keys().then_some(keys.words), logs.shared());
    places.clear();
    if rows > 1 && keys.words.is_empty() && !keys.hashes.is_empty() {
        // The key of no columns: all keys of the block have one row.
        let one = Keys { hashes: &keys.hashes[..1], ahead: &[], words: &[], vars: NoVarKeys };
        find_or_append(&one, layout, index, logs, arena, pool, places);
        places.resize(rows, places[0]);
        return;
    }
    let logs = &mut logs;
    if layout.has_word_keys() {
        places.reserve(rows);
        let mut hashed = [0; BLOCK_ROWS];
        let &Keys { hashes, ahead, words, .. } = keys;
        let mut keys = Keys { hashes, ahead, words, vars: NoVarKeys };
        if keys.hashes.is_empty() && !index.is_direct() {
            hash_each_word(keys.words, &mut hashed[..rows]);
            keys.hashes = &hashed[..rows];
        }
        match layout.template() {
            [a] => find_words([*a], &keys, index, logs, places),
            [a, b] => find_words([*a, *b], &keys, index, logs, places),
            [a, b, c] => find_words([*a, *b, *c], &keys, index, logs, places),
            [a, b, c, d] => find_words([*a, *b, *c, *d], &keys, index, logs, places),
            [a, b, c, d, e] => find_words([*a, *b, *c, *d, *e], &keys, index, logs, places),
            [a, b, c, d, e, f] => find_words([*a, *b, *c, *d, *e, *f], &keys, index, logs, places),
            [a, b, c, d, e, f, g] => {
                find_words([*a, *b, *c, *d, *e, *f, *g], &keys, index, logs, places)
            }
            _ => find_any(&keys, layout, index, logs, arena, places),
        }
    } else {
        find_any(keys, layout, index, logs, arena, places);
    }
}

/// Keys of one word each, values of `N` words.
fn find_words<const N: usize>(
    template: [u64; N],
    keys: &Keys<'_, NoVarKeys>,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    places: &mut Vec<*mut u64>,
) {
    match logs.others {
        None => find_words_in::<N, SingleLog>(template, keys, index, logs, places),
        Some(_) => find_words_in::<N, Joint>(template, keys, index, logs, places),
    }
}

fn find_words_in<const N: usize, K: Kind>(
    template: [u64; N],
    &Keys { hashes, ahead, words, .. }: &Keys<'_, NoVarKeys>,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    places: &mut Vec<*mut u64>,
) {
    assert!(places.capacity() >= words.len());
    #[cfg(target_arch = "x86_64")]
    if !index.is_direct()
        && index.is_near()
        && let Some(often) = frequent(words)
        && Others::are_supported()
    {
        return find_often::<N, K>(often, template, hashes, words, index, logs, places);
    }
    let base = logs.shared().base();
    let out = places.as_mut_ptr();
    let rows = K::rows(logs, hashes, words);
    let mut end = rows.ends();
    let mut met = Met { keys: [0; BLOCK_ROWS], count: 0 };
    if index.is_direct() {
        let met = &mut met;
        let keys = WordKeys::<N, NEVER, _> { words, template, rows, out, met, end: &mut end };
        index.enter_slots(words, base, keys);
    } else if index.is_near() {
        assert!(hashes.len() == words.len());
        let met = &mut met;
        let keys = WordKeys::<N, AT_ONCE, _> { words, template, rows, out, met, end: &mut end };
        index.enter(hashes, &[], base, keys);
    } else {
        assert!(hashes.len() == words.len());
        let met = &mut met;
        let keys = WordKeys::<N, LATER, _> { words, template, rows, out, met, end: &mut end };
        index.enter(hashes, ahead, base, keys);
    }
    logs.commit(end);
    // SAFETY: a place has been written for every key.
    unsafe { places.set_len(words.len()) };
    for i in met.keys[..met.count].iter().map(|i| usize::from(*i)) {
        // SAFETY: all places are written rows, whose first word is the key.
        if unsafe { *places[i] } != words[i] {
            places[i] = find_another::<N, K>(i, template, hashes, words, index, logs);
        }
    }
}

/// As [`find_words`], for buckets that lie near, where the key at `often` comes often: it is looked
/// up once.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn find_often<const N: usize, K: Kind>(
    often: usize,
    template: [u64; N],
    hashes: &[u64],
    words: &[u64],
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    places: &mut Vec<*mut u64>,
) {
    let (mut others, mut found) = (Others::new(), MatchedRows::new());
    // SAFETY: the caller has asked whether the processor has what it takes.
    unsafe { others.take(level(), often, words, hashes) };
    // The frequent key is among the keys, with its hash at that place: neither log gets more new
    // rows than room has been reserved for.
    assert!(others.words().len() <= words.len());
    let base = logs.shared().base();
    let out = found.start();
    let met = &mut Met { keys: [0; BLOCK_ROWS], count: 0 };
    let rows = K::rows(logs, others.hashes(), others.words());
    let mut end = rows.ends();
    let keys = others.words();
    let keys = WordKeys::<N, AT_ONCE, _> { words: keys, template, rows, out, met, end: &mut end };
    index.enter(others.hashes(), &[], base, keys);
    logs.commit(end);
    // SAFETY: the same; and all have been found, so that a place is written for every key.
    unsafe {
        others.spread(level(), &mut found, places.spare_capacity_mut());
        places.set_len(words.len());
    }
}

/// Keys of a block that have met a row whose hash is alike, and have not been compared with its
/// key.
struct Met {
    keys: [u16; BLOCK_ROWS],
    count: usize,
}

/// Two keys share the upper half of their hashes, and the first row met was the other's: searches
/// again.
#[cold]
#[inline(never)]
fn find_another<const N: usize, K: Kind>(
    i: usize,
    template: [u64; N],
    hashes: &[u64],
    words: &[u64],
    index: &mut Index,
    logs: &mut LogsMut<'_>,
) -> *mut u64 {
    let mut place = std::ptr::null_mut();
    let base = logs.shared().base();
    let out = &raw mut place;
    let met = &mut Met { keys: [0; BLOCK_ROWS], count: 0 };
    let (hashes, words) = (&hashes[i..=i], &words[i..=i]);
    let rows = K::rows(logs, hashes, words);
    let mut end = rows.ends();
    let key = WordKeys::<N, AT_ONCE, _> { words, template, rows, out, met, end: &mut end };
    index.enter(hashes, &[], base, key);
    logs.commit(end);
    place
}

/// When the key of a row that the index names is compared with the one that is looked for: at once;
/// or by the caller, when the lines of the rows have arrived, for tables that no near cache holds;
/// or never, since the index is sure.
const AT_ONCE: u8 = 0;
const LATER: u8 = 1;
const NEVER: u8 = 2;

/// Keys of one word each, whose rows have `N` words besides.
struct WordKeys<'a, const N: usize, const COMPARED: u8, R> {
    words: &'a [u64],
    template: [u64; N],
    rows: R,
    /// Room for as many places as there are keys.
    out: *mut *mut u64,
    met: &'a mut Met,
    /// Where the rows end before; when all is done, where they end.
    end: &'a mut Ends,
}

impl<const N: usize, const COMPARED: u8, R: Rows> Entrants for WordKeys<'_, N, COMPARED, R> {
    const FAR: bool = COMPARED == LATER;

    #[inline(always)]
    fn meets(&mut self, i: usize, id: RowId) -> bool {
        // SAFETY: the index names rows of these logs that are not absent; `i` is one of the keys,
        // for each of which there is room in `out`, and in `met`, where it comes once at the most.
        unsafe {
            let place = self.rows.row(id, 1 + N);
            self.out.add(i).write(place);
            if COMPARED != AT_ONCE {
                prefetch(place);
            }
            if COMPARED == LATER {
                if N > 2 {
                    prefetch(place.wrapping_add(N));
                }
                *self.met.keys.get_unchecked_mut(self.met.count) = i as u16;
                self.met.count += 1;
            }
            COMPARED != AT_ONCE || *place == *self.words.get_unchecked(i)
        }
    }

    #[inline(always)]
    fn enters(&mut self, i: usize) -> RowId {
        // SAFETY: room for a row per key was reserved, and the whole row, `1 + N` words, is
        // written; the caller commits. `i` as above.
        unsafe {
            let (id, place) = self.rows.append(i, 1 + N);
            place.write(*self.words.get_unchecked(i));
            place.add(1).cast::<[u64; N]>().write(self.template);
            self.out.add(i).write(place);
            id
        }
    }

    #[inline(always)]
    fn done(self) -> usize {
        let start = std::mem::replace(self.end, self.rows.ends());
        start.rows_to(*self.end)
    }
}

/// Keys of any shape.
fn find_any<V: VarKeys>(
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    arena: &mut Arena,
    places: &mut Vec<*mut u64>,
) {
    match logs.others {
        None => find_any_in::<_, SingleLog>(keys, layout, index, logs, arena, places),
        Some(_) => find_any_in::<_, Joint>(keys, layout, index, logs, arena, places),
    }
}

fn find_any_in<V: VarKeys, K: Kind>(
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    arena: &mut Arena,
    places: &mut Vec<*mut u64>,
) {
    places.resize(keys.rows(layout), std::ptr::null_mut());
    let met = enter_any::<_, K, true>(keys, layout, index, logs, arena, places);
    let met = met.keys[..met.count].iter().map(|i| usize::from(*i));
    // The rows' lines have been asked for, now for what they refer to.
    if !layout.var_words().is_empty() {
        for i in met.clone() {
            // SAFETY: all places are written rows of this layout.
            let row = unsafe { std::slice::from_raw_parts(places[i], layout.key_words()) };
            layout.var_words().iter().for_each(|word| prefetch(arena.place(row[*word])));
        }
    }
    for i in met {
        // SAFETY: all places are written rows of this layout, which refer to this arena.
        if unsafe { !keys.is_at(i, places[i], layout, arena) } {
            places[i] = find_another_any::<_, K>(i, keys, layout, index, logs, arena);
        }
    }
}

/// Looks for the rows of the keys and appends those that are new. With `DEFER`, it returns the keys
/// that have yet to be compared.
fn enter_any<V: VarKeys, K: Kind, const DEFER: bool>(
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    arena: &mut Arena,
    places: &mut [*mut u64],
) -> Met {
    let base = logs.shared().base();
    let rows = K::rows(logs, keys.hashes, keys.words);
    let mut end = rows.ends();
    let mut met = Met { keys: [0; BLOCK_ROWS], count: 0 };
    let any =
        AnyKeys::<_, _, DEFER> { keys, layout, arena, rows, places, met: &mut met, end: &mut end };
    if index.is_direct() {
        index.enter_slots(keys.words, base, any);
    } else {
        index.enter(keys.hashes, keys.ahead, base, any);
    }
    logs.commit(end);
    met
}

/// As [`find_another`], for keys of any shape.
#[cold]
#[inline(never)]
fn find_another_any<V: VarKeys, K: Kind>(
    i: usize,
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    index: &mut Index,
    logs: &mut LogsMut<'_>,
    arena: &mut Arena,
) -> *mut u64 {
    let width = layout.key_words();
    let key = Keys {
        hashes: &keys.hashes[i..=i],
        ahead: &[],
        words: &keys.words[i * width..(i + 1) * width],
        vars: RowVars { vars: &keys.vars, row: i },
    };
    let mut place = [std::ptr::null_mut()];
    enter_any::<_, K, false>(&key, layout, index, logs, arena, &mut place);
    place[0]
}

/// The variable-length parts of one key of a block.
struct RowVars<'a, V> {
    vars: &'a V,
    row: usize,
}

impl<V: VarKeys> VarKeys for RowVars<'_, V> {
    fn bytes(&self, _: usize, var: usize) -> &[u8] {
        self.vars.bytes(self.row, var)
    }
}

/// Keys of any shape. With `DEFER`, they are compared later, otherwise at once.
struct AnyKeys<'a, 'k, V, R, const DEFER: bool> {
    keys: &'a Keys<'k, V>,
    layout: &'a RowLayout,
    arena: &'a mut Arena,
    rows: R,
    /// One for each key.
    places: &'a mut [*mut u64],
    met: &'a mut Met,
    /// Where the rows end before; when all is done, where they end.
    end: &'a mut Ends,
}

impl<V: VarKeys, R: Rows, const DEFER: bool> Entrants for AnyKeys<'_, '_, V, R, DEFER> {
    const FAR: bool = DEFER;

    #[inline]
    fn meets(&mut self, i: usize, id: RowId) -> bool {
        let row_words = self.layout.row_words();
        // SAFETY: the index names written rows of these logs that are not absent, and of this
        // layout.
        unsafe {
            let place = self.rows.row(id, row_words);
            if DEFER {
                prefetch(place);
                prefetch(place.wrapping_add(row_words - 1));
                self.met.keys[self.met.count] = i as u16;
                self.met.count += 1;
            } else if !self.keys.is_at(i, place, self.layout, self.arena) {
                return false;
            }
            self.places[i] = place;
            true
        }
    }

    #[inline]
    fn enters(&mut self, i: usize) -> RowId {
        // SAFETY: room for a row per key was reserved, and the whole row is written; the caller
        // commits.
        unsafe {
            let (id, place) = self.rows.append(i, self.layout.row_words());
            self.keys.write_row(i, place, self.layout, self.arena);
            self.places[i] = place;
            id
        }
    }

    #[inline]
    fn done(self) -> usize {
        let start = std::mem::replace(self.end, self.rows.ends());
        start.rows_to(*self.end)
    }
}

/// Appends a row for every key without looking any of them up, and lists their places.
pub(crate) fn append<V: VarKeys>(
    keys: &Keys<'_, V>,
    layout: &RowLayout,
    log: &mut Log,
    arena: &mut Arena,
    pool: &mut ChunkPool,
    places: &mut Vec<*mut u64>,
) {
    let rows = keys.rows(layout);
    log.reserve(rows, pool);
    places.clear();
    let end = match (layout.has_word_keys(), layout.template()) {
        (true, [a]) => append_words([*a], keys.words, log, places),
        (true, [a, b]) => append_words([*a, *b], keys.words, log, places),
        _ => {
            let mut cursor = log.cursor();
            places.extend((0..rows).map(|row| {
                // SAFETY: room was reserved; the whole row is written.
                unsafe {
                    let place = cursor.append(layout.row_words()).1;
                    keys.write_row(row, place, layout, arena);
                    place
                }
            }));
            cursor.end()
        }
    };
    log.commit(end);
}

fn append_words<const N: usize>(
    template: [u64; N],
    words: &[u64],
    log: &Log,
    places: &mut Vec<*mut u64>,
) -> RowId {
    let mut cursor = log.cursor();
    places.extend(words.iter().map(|&word| {
        // SAFETY: room was reserved; the whole row, `1 + N` words, is written.
        unsafe {
            let place = cursor.append(1 + N).1;
            place.write(word);
            place.add(1).cast::<[u64; N]>().write(template);
            place
        }
    }));
    cursor.end()
}
