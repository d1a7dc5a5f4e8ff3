//! A look at Thrift's compact protocol before the library reads it.
//!
//! The library makes room for as many row groups as a list claims to have. A claim of two billion,
//! which one flipped bit can make, would end the process. So a list that is longer than the bytes
//! behind it is found here first. Also, what a dictionary page says of itself is read here, since
//! the library keeps that to itself.

/// Structures within structures; those of Parquet are seven deep.
const DEPTH_MAX: usize = 32;

/// Bytes that have not been read yet.
struct Compact<'a>(&'a [u8]);

/// A field's number, and its type.
struct FieldHead {
    id: i16,
    kind: u8,
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// Whether the bytes begin with a whole structure, of which no list is longer than what is left.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    Compact(bytes).skip(STRUCT, 0).is_some()
}

/// How deep the schema of a file is: how often a column may stand in another. `None` if the bytes
/// are not those of a file's metadata.
pub(super) fn schema_depth(metadata: &[u8]) -> Option<usize> {
    let (mut input, mut id) = (Compact(metadata), 0);
    loop {
        let FieldHead { id: number, kind } = input.field(id)??;
        id = number;
        if (number, kind) == (2, LIST) {
            break;
        }
        input.skip(kind, 0)?;
    }
    let head = input.byte()?;
    let count = if head >> 4 == 15 { input.varint()? } else { u64::from(head >> 4) };
    if head & 0xf != STRUCT {
        return None;
    }
    // The children that are still to come, of each column that the next one stands in.
    let (mut open, mut depth): (Vec<i64>, usize) = (Vec::new(), 0);
    for _ in 0..count {
        let children = input.children()?;
        while let Some(left) = open.last_mut() {
            if *left > 0 {
                *left -= 1;
                break;
            }
            open.pop();
        }
        if children > 0 {
            open.push(children);
        }
        depth = depth.max(open.len());
    }
    Some(depth)
}

/// The bytes of a page as these, which its header begins with, say: unpacked, and as they stand in
/// the file.
pub(super) fn page_bytes(header: &[u8]) -> Option<(u64, u64)> {
    let (mut input, mut id) = (Compact(header), 0);
    let mut unpacked = None;
    while let Some(FieldHead { id: number, kind }) = input.field(id)? {
        id = number;
        match (number, kind) {
            (2, I32) => unpacked = Some(u64::try_from(input.zigzag()?).ok()?),
            (3, I32) => return Some((unpacked?, u64::try_from(input.zigzag()?).ok()?)),
            _ => input.skip(kind, 0)?,
        }
    }
    None
}

/// A page, by its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header, and of the packed page after it.
    pub(super) bytes: u64,
    /// Values of a data page; `None` for a dictionary.
    pub(super) values: Option<u64>,
    /// Whether the values are indexes of the dictionary.
    pub(super) is_indexes: bool,
}

/// The page whose header begins with these bytes. `None` if the bytes hold no whole header of a
/// dictionary or a data page whose fields are in order.
pub(super) fn page_header(bytes: &[u8]) -> Option<PageHeader> {
    let (mut input, mut last) = (Compact(bytes), 0);
    let (mut kind, mut packed, mut about) = (None, None, None);
    while let Some(FieldHead { id, kind: of }) = input.field(last)? {
        if id <= last {
            return None;
        }
        last = id;
        match (id, of) {
            (1, I32) => kind = Some(input.zigzag()?),
            (3, I32) => packed = Some(u64::try_from(input.zigzag()?).ok()?),
            (5, STRUCT) => about = Some((0, input.values_and_encoding(2)?)),
            (7, STRUCT) => about = Some((2, input.values_and_encoding(2)?)),
            (8, STRUCT) => about = Some((3, input.values_and_encoding(4)?)),
            _ => input.skip(of, 0)?,
        }
    }
    let (of, (values, encoding)) = about.filter(|(of, _)| Some(*of) == kind)?;
    let header = (bytes.len() - input.0.len()) as u64;
    Some(PageHeader {
        bytes: header.checked_add(packed?)?,
        values: (of != 2).then_some(values),
        // PLAIN_DICTIONARY and RLE_DICTIONARY.
        is_indexes: of != 2 && [2, 8].contains(&encoding),
    })
}

/// Size of a dictionary, by its page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dictionary {
    pub(super) values: u64,
    /// Unpacked.
    pub(super) bytes: u64,
}

/// The dictionary whose page begins with these bytes; `None` if it is no such page.
pub(super) fn dictionary(bytes: &[u8]) -> Option<Dictionary> {
    let (mut input, mut id) = (Compact(bytes), 0);
    let (mut size, mut values) = (None, None);
    while let Some(FieldHead { id: number, kind }) = input.field(id)? {
        id = number;
        match (number, kind) {
            (2, I32) => size = Some(input.zigzag()?),
            (7, STRUCT) => {
                let head = input.field(0)?.filter(|head| (head.id, head.kind) == (1, I32));
                head?;
                values = Some(input.zigzag()?);
                break;
            }
            _ => input.skip(kind, 0)?,
        }
    }
    let (values, bytes) = (u64::try_from(values?).ok()?, u64::try_from(size?).ok()?);
    Some(Dictionary { values, bytes })
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// The next field of a structure, after that numbered `last`; `Some(None)` at its end.
    fn field(&mut self, last: i16) -> Option<Option<FieldHead>> {
        let head = self.byte()?;
        let (delta, kind) = (head >> 4, head & 0xf);
        if head == 0 {
            return Some(None);
        }
        let id = match delta {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => last.checked_add(i16::from(delta))?,
        };
        Some(Some(FieldHead { id, kind }))
    }

    /// Passes the part of a header about one kind of page: gives the number of values, field 1, and
    /// the encoding, a field of the given number up to 4.
    fn values_and_encoding(&mut self, encoding: usize) -> Option<(u64, i64)> {
        let (mut last, mut numbers) = (0, [None; 5]);
        while let Some(FieldHead { id, kind }) = self.field(last)? {
            if id <= last {
                return None;
            }
            last = id;
            match (usize::try_from(id).ok().and_then(|id| numbers.get_mut(id)), kind) {
                (Some(number), I32) => *number = Some(self.zigzag()?),
                _ => self.skip(kind, 1)?,
            }
        }
        // The second version of data pages has its rows, too: as many, as no value is an array.
        let is_flat = encoding != 4 || numbers[3] == numbers[1];
        let values = numbers[1].filter(|_| is_flat)?;
        Some((u64::try_from(values).ok()?, (*numbers.get(encoding)?)?))
    }

    /// Passes an element of a schema, and gives the number of its children.
    fn children(&mut self) -> Option<i64> {
        let (mut id, mut children) = (0, 0);
        while let Some(FieldHead { id: number, kind }) = self.field(id)? {
            id = number;
            match (number, kind) {
                (5, I32) => children = self.zigzag()?,
                _ => self.skip(kind, 0)?,
            }
        }
        Some(children)
    }

    /// Passes a value, which in a structure stands at this depth.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            TRUE | FALSE => Some(()),
            BYTE => self.skip_bytes(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let length = self.varint()?;
                self.skip_bytes(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    few => u64::from(few),
                };
                // Each element has a byte at least.
                if count > self.0.len() as u64 {
                    return None;
                }
                (0..count).try_for_each(|_| self.skip_element(head & 0xf, depth))
            }
            MAP => {
                let count = self.varint()?;
                if count > self.0.len() as u64 {
                    return None;
                }
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0xf, depth)
                })
            }
            STRUCT => {
                let mut id = 0;
                while let Some(FieldHead { id: number, kind }) = self.field(id)? {
                    id = number;
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// In a list, a truth value takes a byte.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => self.skip_bytes(1),
            _ => self.skip(kind, depth + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes put together by hand, as the protocol has them.
    #[test]
    fn what_a_dictionary_page_says_of_itself() {
        // 1: type 2; 2: 300 bytes unpacked; 3: 9 packed; 7: { 1: 70 values; 2: encoding 0 }.
        let page = [0x15, 4, 0x15, 0xd8, 4, 0x15, 18, 0x4c, 0x15, 0x8c, 1, 0x15, 0, 0, 0];
        assert_eq!(dictionary(&page), Some(Dictionary { values: 70, bytes: 300 }));
        assert!(is_whole(&page));
        for cut in 0..page.len() {
            assert!(!is_whole(&page[..cut]), "{cut} bytes");
        }
        // A data page has the field 5 instead.
        assert_eq!(dictionary(&[0x15, 0, 0x15, 2, 0x15, 2, 0x2c, 0x15, 2, 0, 0]), None);
    }

    #[test]
    fn how_deep_a_schema_is() {
        // 1: version 2; 2: a list of elements, each { 4: a name of one byte, 5: its children }.
        let metadata = |children: &[u8]| {
            let element = |n: &u8| [0x48, 1, b'x', 0x15, 2 * n, 0];
            let mut bytes = vec![0x15, 2, 0x19, 0xfc, children.len() as u8];
            bytes.extend(children.iter().flat_map(element));
            bytes.push(0);
            bytes
        };
        for (children, depth) in [
            (&[3, 0, 0, 0][..], 1),
            (&[2, 1, 0, 1, 1, 0], 3),
            (&[2, 2, 0, 0, 0], 2),
            (&[1, 1, 1, 1, 1], 5),
        ] {
            assert_eq!(schema_depth(&metadata(children)), Some(depth), "{children:?}");
        }
        let whole = metadata(&[1, 1, 0]);
        assert_eq!(schema_depth(&whole[..whole.len() - 3]), None);
    }

    #[test]
    fn a_page_header_tells_its_sizes() {
        // 1: the type, 2: 128 bytes unpacked, 3: 77 as they stand.
        let header = [0x15, 4, 0x15, 0x80, 2, 0x15, 0x9a, 1, 0x4c];
        assert_eq!(page_bytes(&header), Some((128, 77)));
        assert_eq!(page_bytes(&header[..7]), None);
        // Less than nothing.
        assert_eq!(page_bytes(&[0x15, 4, 0x15, 3, 0x15, 2, 0]), None);
    }

    #[test]
    fn a_page_header_tells_its_kind() {
        // 1: type 0; 2: 300 bytes unpacked; 3: 9 packed; 5: { 1: 70 values; 2: encoding 8 }.
        let data = [0x15, 0, 0x15, 0xd8, 4, 0x15, 18, 0x2c, 0x15, 0x8c, 1, 0x15, 16, 0, 0];
        let header = PageHeader { bytes: 15 + 9, values: Some(70), is_indexes: true };
        assert_eq!(page_header(&[&data[..], &[7; 20]].concat()), Some(header));
        for cut in 0..data.len() {
            assert_eq!(page_header(&data[..cut]), None, "{cut} bytes");
        }
        // 1: type 3; 2, 3; 8: { 1: 5 values; 3: 5 rows; 4: encoding 0 }.
        let second = [0x15, 6, 0x15, 2, 0x15, 2, 0x5c, 0x15, 10, 0x25, 10, 0x15, 0, 0, 0];
        let header = PageHeader { bytes: 15 + 1, values: Some(5), is_indexes: false };
        assert_eq!(page_header(&second), Some(header));
        assert_eq!(page_header(&[&second[..10], &[12], &second[11..]].concat()), None);
        // 1: type 2; 2, 3; 7: { 1: 70 values; 2: encoding 2 }.
        let dictionary = [0x15, 4, 0x15, 2, 0x15, 2, 0x4c, 0x15, 0x8c, 1, 0x15, 4, 0, 0];
        let header = PageHeader { bytes: 14 + 1, values: None, is_indexes: false };
        assert_eq!(page_header(&dictionary), Some(header));
        // A type that the rest contradicts, and a field that comes again.
        assert_eq!(page_header(&[&[0x15, 0], &dictionary[2..]].concat()), None);
        assert_eq!(page_header(&[0x15, 4, 0x15, 2, 0x05, 4, 2, 0]), None);
    }

    #[test]
    fn a_list_is_no_longer_than_what_is_left() {
        // 1: a list of 15 or more numbers, of which there are two.
        assert!(is_whole(&[0x19, 0x25, 1, 2, 0]));
        assert!(!is_whole(&[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 7, 1, 2, 0]));
        // 1: a map from numbers to texts.
        assert!(is_whole(&[0x1b, 1, 0x58, 2, 1, b'x', 0]));
        let deep: Vec<u8> = [0x1c].repeat(100).into_iter().chain([0; 101]).collect();
        assert!(!is_whole(&deep));
    }
}
