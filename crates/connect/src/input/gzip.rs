//! Gzip, member by member.
//!
//! Behind the last member there may be zeros, as tapes and devices have them that are written in
//! blocks. What else is there is an error that says where: it is no data of a member, and to leave
//! it out would hide that something is wrong.

use std::fmt;
use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Error for bytes behind the last member, with their position.
#[derive(Debug)]
pub(super) struct Behind(u64);

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0;
        write!(f, "behind its gzip data something else begins, at offset {at}: cut it off there")
    }
}

impl std::error::Error for Behind {}

/// Unpacked members of a file, one after the other.
pub(super) struct Gzip<R: BufRead>(GzipState<R>);

enum GzipState<R: BufRead> {
    Member {
        decoder: Box<GzDecoder<CountingReader<R>>>,
        /// Position of the member, unless it is the first.
        start: Option<u64>,
    },
    /// Between members.
    Between(CountingReader<R>),
    Ended,
}

impl<R: BufRead> Gzip<R> {
    /// Of packed bytes.
    pub(super) fn new(packed: R) -> Gzip<R> {
        let decoder = Box::new(GzDecoder::new(CountingReader { inner: packed, taken: 0 }));
        Gzip(GzipState::Member { decoder, start: None })
    }
}

/// Passes over zeros; the next member, if there is one.
fn next<R: BufRead>(
    mut rest: CountingReader<R>,
) -> Result<GzipState<R>, (CountingReader<R>, io::Error)> {
    loop {
        let (found, zeros) = match rest.fill_buf() {
            Err(error) => return Err((rest, error)),
            Ok([]) => return Ok(GzipState::Ended),
            Ok(bytes) => {
                let zeros = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
                let left = bytes.get(zeros..).unwrap_or_default();
                // Of its first two bytes, the second may not have come yet.
                let begins = matches!(left, [0x1f] | [0x1f, 0x8b, ..]);
                (left.first().map(|_| begins), zeros)
            }
        };
        rest.consume(zeros);
        match found {
            None => {}
            Some(true) => {
                let start = Some(rest.taken);
                let decoder = Box::new(GzDecoder::new(rest));
                return Ok(GzipState::Member { decoder, start });
            }
            Some(false) => {
                let behind = io::Error::new(io::ErrorKind::InvalidData, Behind(rest.taken));
                return Err((rest, behind));
            }
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.0 {
                GzipState::Ended => return Ok(0),
                GzipState::Member { decoder, start } => match decoder.read(out) {
                    Ok(0) if !out.is_empty() => {
                        let ended = std::mem::replace(&mut self.0, GzipState::Ended);
                        if let GzipState::Member { decoder, .. } = ended {
                            self.0 = GzipState::Between(decoder.into_inner());
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                    Err(error) => {
                        // It is no member from its first two bytes on.
                        let short = decoder.get_ref().taken < start.unwrap_or(0) + 2;
                        let is_other = error.kind() == io::ErrorKind::InvalidInput || short;
                        let is_other = is_other && decoder.header().is_none();
                        return Err(match start.filter(|_| is_other) {
                            Some(at) => io::Error::new(io::ErrorKind::InvalidData, Behind(at)),
                            None => error,
                        });
                    }
                    got => return got,
                },
                GzipState::Between(_) => {
                    if let GzipState::Between(rest) =
                        std::mem::replace(&mut self.0, GzipState::Ended)
                    {
                        match next(rest) {
                            Ok(state) => self.0 = state,
                            Err((rest, error)) => {
                                self.0 = GzipState::Between(rest);
                                return Err(error);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Counts what is taken.
struct CountingReader<R> {
    inner: R,
    taken: u64,
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(out)?;
        self.taken += got as u64;
        Ok(got)
    }
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken += count as u64;
        self.inner.consume(count);
    }
}
