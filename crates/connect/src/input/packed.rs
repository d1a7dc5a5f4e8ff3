//! Packed files: gzip, zstd and bzip2, known by their first bytes.
//!
//! A file may consist of several packed parts, one after the other, as by `cat a.gz b.gz`. Behind
//! the parts, gzip may have zeros that fill a block; between them, zstd may have parts to be
//! skipped. A file that ends in the middle of a part is an error. So is a file whose name promises
//! a packing that its bytes do not have.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bzip2::bufread::MultiBzDecoder;

use super::gzip::{Behind, Gzip};

/// A repeated byte packs best: with zstd, whose blocks of 128 KiB then have four bytes.
const TIMES_MAX: u64 = 32 << 10;

/// Bytes that so many packed ones can unpack to at most, whatever the packing, give or take a
/// header. Who claims more is damaged.
pub(crate) fn may_unpack_to(packed: u64) -> u64 {
    packed.saturating_add(64).saturating_mul(TIMES_MAX)
}

/// How a file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
    Bzip2,
}

const ALL: [Packing; 3] = [Packing::Gzip, Packing::Zstd, Packing::Bzip2];

/// Bytes that tell a packing.
const MAGIC_BYTES_MAX: usize = 4;

/// Bytes read from a file at once.
const READ_BYTES: usize = 128 << 10;

/// True if `start` may begin a skippable frame of zstd; `pzstd` writes such a frame before each
/// part.
fn may_be_left_out(start: &[u8]) -> bool {
    // The first byte is from 0x50 to 0x5f.
    let like = start.iter().zip([0x50, 0x2a, 0x4d, 0x18]).enumerate();
    like.into_iter().all(|(at, (byte, magic))| *byte == magic || at == 0 && byte & 0xf0 == magic)
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Packing {
    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
            Packing::Bzip2 => "bzip2",
        }
    }

    fn magic(self) -> &'static [u8] {
        match self {
            Packing::Gzip => &[0x1f, 0x8b],
            Packing::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            Packing::Bzip2 => b"BZh",
        }
    }

    /// Packing promised by a file's name.
    pub(crate) fn of_name(path: &str) -> Option<Packing> {
        let extension = Path::new(path).extension()?.to_str()?;
        match extension.to_ascii_lowercase().as_str() {
            "gz" | "gzip" => Some(Packing::Gzip),
            "zst" | "zstd" => Some(Packing::Zstd),
            "bz2" => Some(Packing::Bzip2),
            _ => None,
        }
    }

    /// Packing shown by a file's first bytes.
    pub(crate) fn of_bytes(start: &[u8]) -> Option<Packing> {
        let is_left_out = start.len() >= MAGIC_BYTES_MAX && may_be_left_out(start);
        let found = ALL.into_iter().find(|packing| start.starts_with(packing.magic()));
        found.or(is_left_out.then_some(Packing::Zstd))
    }

    /// Whether more bytes could still show a packing.
    fn may_follow(start: &[u8]) -> bool {
        let known = |packing: &Packing| {
            packing.magic().len() > start.len() && packing.magic().starts_with(start)
        };
        ALL.iter().any(known) || start.len() < MAGIC_BYTES_MAX && may_be_left_out(start)
    }

    fn unpack(self, packed: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(Gzip::new(packed)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
            Packing::Bzip2 => Box::new(MultiBzDecoder::new(packed)),
        })
    }
}

/// Unpacked bytes of a packed file, from front to back.
pub(crate) struct Unpacked {
    packing: Packing,
    inner: Box<dyn Read + Send>,
    /// Packed bytes taken in.
    taken: Arc<AtomicU64>,
}

impl Unpacked {
    /// Of bytes that are packed so.
    pub(crate) fn new(
        packing: Packing,
        packed: impl Read + Send + 'static,
    ) -> io::Result<Unpacked> {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = ProgressReader { inner: packed, taken: taken.clone() };
        let inner = packing.unpack(BufReader::with_capacity(READ_BYTES, counted))?;
        Ok(Unpacked { packing, inner, taken })
    }
}

impl Read for Unpacked {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let (name, taken) = (self.packing.name(), self.taken.load(Ordering::Relaxed));
                let message = match error.kind() {
                    _ if error.get_ref().is_some_and(|inner| inner.is::<Behind>()) => {
                        error.to_string()
                    }
                    io::ErrorKind::UnexpectedEof => {
                        format!(
                            "the file ends in the middle of its {name} data, after {taken} bytes"
                        )
                    }
                    _ => format!(
                        "its {name} data is damaged within the first {taken} bytes: {error}"
                    ),
                };
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            got => got,
        }
    }
}

/// Counts what is read.
struct ProgressReader<R> {
    inner: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(out)?;
        self.taken.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// A stream that is unpacked if its first bytes show a packing.
pub(crate) struct MaybePacked(PackingState);

enum PackingState {
    /// Nothing has been read.
    New(Box<dyn Read + Send>),
    Plain {
        start: io::Cursor<Vec<u8>>,
        rest: Box<dyn Read + Send>,
    },
    Packed(Unpacked),
    Failed,
}

impl MaybePacked {
    pub(crate) fn new(stream: Box<dyn Read + Send>) -> MaybePacked {
        MaybePacked(PackingState::New(stream))
    }

    /// Reads until it is clear whether the stream is packed, no further.
    fn begin(mut stream: Box<dyn Read + Send>) -> io::Result<PackingState> {
        let mut start = Vec::new();
        while Packing::may_follow(&start) {
            let mut byte = [0; MAGIC_BYTES_MAX];
            let wanted = if start.is_empty() { 1 } else { MAGIC_BYTES_MAX - start.len() };
            match stream.read(&mut byte[..wanted]) {
                Ok(0) => break,
                Ok(got) => start.extend_from_slice(&byte[..got]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let packing = Packing::of_bytes(&start);
        let start = io::Cursor::new(start);
        match packing {
            Some(packing) => Ok(PackingState::Packed(Unpacked::new(packing, start.chain(stream))?)),
            None => Ok(PackingState::Plain { start, rest: stream }),
        }
    }
}

impl Read for MaybePacked {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let PackingState::New(_) = &self.0
            && let PackingState::New(stream) = std::mem::replace(&mut self.0, PackingState::Failed)
        {
            self.0 = MaybePacked::begin(stream)?;
        }
        match &mut self.0 {
            PackingState::Plain { start, rest } => match start.read(out)? {
                0 => rest.read(out),
                got => Ok(got),
            },
            PackingState::Packed(unpacked) => unpacked.read(out),
            PackingState::New(_) | PackingState::Failed => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pack(packing: Packing, text: &[u8]) -> Vec<u8> {
        match packing {
            Packing::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                packer.write_all(text).unwrap();
                packer.finish().unwrap()
            }
            Packing::Zstd => zstd::encode_all(text, 3).unwrap(),
            Packing::Bzip2 => {
                let mut packer = bzip2::write::BzEncoder::new(Vec::new(), Default::default());
                packer.write_all(text).unwrap();
                packer.finish().unwrap()
            }
        }
    }

    fn unpack(packing: Packing, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Unpacked::new(packing, io::Cursor::new(bytes.to_vec()))?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn parts_one_after_the_other_are_one_text() {
        for packing in ALL {
            let mut packed = pack(packing, b"first\n");
            packed.extend(pack(packing, b""));
            packed.extend(pack(packing, b"second\n"));
            assert_eq!(unpack(packing, &packed).unwrap(), b"first\nsecond\n", "{packing:?}");
            assert_eq!(Packing::of_bytes(&packed), Some(packing));
        }
    }

    #[test]
    fn every_truncation_is_an_error_with_its_place() {
        let text: Vec<u8> =
            (0..3000u32).flat_map(|n| format!("{}\n", n * 7919).into_bytes()).collect();
        for packing in ALL {
            let packed = pack(packing, &text);
            for end in packing.magic().len()..packed.len() {
                let error = unpack(packing, &packed[..end]).expect_err("it is cut off").to_string();
                let expected =
                    format!("in the middle of its {} data, after {end} bytes", packing.name());
                assert!(error.contains(&expected), "{packing:?} {end}: {error}");
            }
        }
    }

    #[test]
    fn zeros_behind_gzip_are_left_out_and_anything_else_is_an_error_with_its_offset() {
        let member = pack(Packing::Gzip, b"first\n");
        let zeros = vec![0; 300_000];
        let padded = [&member[..], &zeros].concat();
        assert_eq!(unpack(Packing::Gzip, &padded).unwrap(), b"first\n");
        let twice = [&member[..], &zeros[..100], &member, &zeros].concat();
        assert_eq!(unpack(Packing::Gzip, &twice).unwrap(), b"first\nfirst\n");
        let at = member.len();
        let garbage: [(&[u8], usize); 5] =
            [(b"x", at), (b"\x1f", at), (b"\x1fnothing", at), (b"\0\0\0x", at + 3), (b"\n", at)];
        for (behind, at) in garbage {
            let found = unpack(Packing::Gzip, &[&member[..], behind].concat()).unwrap_err();
            let found = found.to_string();
            assert!(found.contains(&format!("offset {at}")), "{behind:?}: {found}");
            assert!(!found.contains("in the middle"), "{behind:?}: {found}");
        }
        // A further member that is cut off is no garbage.
        let cut = [&member[..], &member[..at - 1]].concat();
        let found = unpack(Packing::Gzip, &cut).unwrap_err().to_string();
        assert!(found.contains("in the middle"), "{found}");
    }

    #[test]
    fn parts_of_zstd_that_readers_leave_out_may_come_first() {
        // As pzstd writes them: the length of what follows.
        let text = b"a,b\n1,2\n";
        let frame = pack(Packing::Zstd, text);
        for first in [0x50u8, 0x57, 0x5f] {
            let length = [4, 0, 0, 0];
            let skipped = [&[first, 0x2a, 0x4d, 0x18][..], &length, &[7; 4]].concat();
            let packed = [&skipped[..], &frame, &skipped, &frame].concat();
            assert_eq!(Packing::of_bytes(&packed), Some(Packing::Zstd));
            assert_eq!(unpack(Packing::Zstd, &packed).unwrap(), text.repeat(2));
            let mut out = Vec::new();
            let stream = Box::new(Slowly(io::Cursor::new(packed)));
            MaybePacked::new(stream).read_to_end(&mut out).unwrap();
            assert_eq!(out, text.repeat(2));
        }
        for other in [&b"PRIMARY"[..], b"P*M", b"P*Mx", b"\x60\x2a\x4d\x18", b"P"] {
            assert_eq!(Packing::of_bytes(other), None);
        }
        assert!(!Packing::may_follow(b"Px"));
    }

    #[test]
    fn damage_is_an_error() {
        let text = b"some text that is packed and then damaged\n".repeat(100);
        for packing in ALL {
            let mut packed = pack(packing, &text);
            let middle = packed.len() / 2;
            packed[middle] ^= 0x55;
            match unpack(packing, &packed) {
                Ok(out) => assert_ne!(out, text, "{packing:?}"),
                Err(error) => assert!(error.to_string().contains(packing.name()), "{error}"),
            }
        }
    }

    /// Gives a byte at a time, as a slow pipe does.
    struct Slowly(io::Cursor<Vec<u8>>);

    impl Read for Slowly {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let one = out.len().min(1);
            self.0.read(&mut out[..one])
        }
    }

    #[test]
    fn a_stream_shows_by_itself_whether_it_is_packed() {
        let text = b"a,b\n1,2\n".to_vec();
        let mut streams =
            vec![(text.clone(), text.clone()), (vec![], vec![]), (vec![0x1f], vec![0x1f])];
        streams.extend(ALL.map(|packing| (pack(packing, &text), text.clone())));
        for (bytes, expected) in streams {
            let mut out = Vec::new();
            let stream = Box::new(Slowly(io::Cursor::new(bytes)));
            MaybePacked::new(stream).read_to_end(&mut out).unwrap();
            assert_eq!(out, expected);
        }
    }
}
