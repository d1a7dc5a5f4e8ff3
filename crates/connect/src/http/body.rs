//! Framing and packing of a body: chunks (RFC 9112, 7.1), gzip and zstd.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

use super::message::Answer;
use super::request::ContentEncoding;

/// Bytes of a line before a chunk, or behind the last, with its end.
pub(super) const LINE_BYTES_MAX: usize = 1 << 10;

/// Windows of zstd have 8 MiB at most where they are sent over HTTP (RFC 9659).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bytes unpacked at once.
const STEP_BYTES: u64 = 64 << 10;

/// Reads the line before a chunk, without its line end: how many bytes the chunk has.
pub(super) fn chunk_bytes(line: &[u8]) -> Result<u64, Answer> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    // Somebody in between could take a single one for a line end.
    let is_line = !line.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
    let is_number = digits.iter().all(u8::is_ascii_hexdigit) && digits.len() <= 16 && is_line;
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| Answer::new(400, "a chunk begins with its length, in hexadecimal digits"))
}

/// Unpacks a body, which may have so many bytes then. `room` makes room for some more of them.
pub(super) fn unpack(
    body: &[u8],
    packing: ContentEncoding,
    bytes_max: u64,
    mut room: impl FnMut(u64) -> Result<(), Answer>,
) -> Result<Vec<u8>, Answer> {
    let damaged = |error: &dyn std::fmt::Display| {
        Answer::new(400, format!("the body cannot be unpacked: {error}"))
    };
    let mut reader: Box<dyn Read + '_> = match packing {
        ContentEncoding::Gzip => Box::new(MultiGzDecoder::new(body)),
        ContentEncoding::Zstd => Box::new(zstd_of(body).map_err(|error| damaged(&error))?),
    };
    let mut unpacked = Vec::new();
    loop {
        let left = bytes_max.saturating_sub(unpacked.len() as u64);
        room(STEP_BYTES.min(left))?;
        let mut step = reader.by_ref().take(STEP_BYTES.min(left + 1));
        match step.read_to_end(&mut unpacked).map_err(|error| damaged(&error))? as u64 {
            0 => return Ok(unpacked),
            read if read > left => return Err(too_large(bytes_max)),
            _ => {}
        }
    }
}

fn zstd_of(body: &[u8]) -> std::io::Result<impl Read + '_> {
    let mut reader = zstd::stream::read::Decoder::with_buffer(body)?;
    reader.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(reader)
}

/// Flaw of a body with more bytes.
pub(super) fn too_large(bytes_max: u64) -> Answer {
    Answer::new(413, format!("a body has at most {bytes_max} bytes ('max-body')"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_says_how_long_it_is() {
        for (line, expected) in [("0", 0), ("1a;x=\"y\"", 26), ("00FF ;a", 255)] {
            assert_eq!(chunk_bytes(line.as_bytes()), Ok(expected), "{line}");
        }
        for line in ["", ";a", "-1", "+1", "0x1", "1 2", " 1", "1\n", "1;\nb", "11112222333344445"]
        {
            assert_eq!(chunk_bytes(line.as_bytes()).unwrap_err().status, 400, "{line}");
        }
    }

    #[test]
    fn a_packed_body_has_bounds() {
        let text = vec![b'x'; 300_000];
        let packed = zstd::encode_all(&text[..], 3).unwrap();
        let mut made = 0;
        let mut unpacked = |max| {
            unpack(&packed, ContentEncoding::Zstd, max, |bytes| {
                made += bytes;
                Ok(())
            })
        };
        assert_eq!(unpacked(300_000), Ok(text));
        assert_eq!(unpacked(299_999).unwrap_err().status, 413);
        assert!(made <= 2 * 300_000 + STEP_BYTES, "room before bytes");
        let full = |_| Err(Answer::new(429, "later"));
        assert_eq!(unpack(&packed, ContentEncoding::Zstd, 300_000, full).unwrap_err().status, 429);
        let cut = &packed[..packed.len() - 1];
        assert_eq!(
            unpack(cut, ContentEncoding::Zstd, 300_000, |_| Ok(())).unwrap_err().status,
            400
        );
        assert_eq!(
            unpack(b"x", ContentEncoding::Gzip, 300_000, |_| Ok(())).unwrap_err().status,
            400
        );
        // A frame whose window would be 128 MiB.
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0];
        assert_eq!(
            unpack(&wide, ContentEncoding::Zstd, 300_000, |_| Ok(())).unwrap_err().status,
            400
        );
    }
}
