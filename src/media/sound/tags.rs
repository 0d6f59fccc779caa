//! Finds the audio between tags. Tags may have pictures of any size, and are of no use here.

/// `ID3`, two bytes of the version, flags, a length.
const ID3_HEADER: usize = 10;
/// The flag of a footer, which is as long as the header.
const ID3_FOOTER: u8 = 0x10;
const FLAC_MARKER: usize = 4;
/// The length of FLAC's block with the properties of the stream, which is the first.
const STREAM_INFO: usize = 34;

/// The file after its ID3v2 tags (<https://id3.org/id3v2.4.0-structure>).
pub(super) fn without_id3(mut file: &[u8]) -> &[u8] {
    while let [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] = *file {
        // Seven bits of each byte.
        let length = [a, b, c, d].iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        let footer = if flags & ID3_FOOTER == 0 { 0 } else { ID3_HEADER };
        file = file.get(ID3_HEADER + length + footer..).unwrap_or_default();
    }
    file
}

/// The properties of a FLAC stream, and its frames (RFC 9639, section 8). `None` if they are missing.
pub(super) fn flac_stream(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = file.get(FLAC_MARKER..)?;
    let mut info = None;
    loop {
        let (head, content) = rest.split_at_checked(4)?;
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        let block = content.get(..length)?;
        if head[0] & 0x7f == 0 {
            info = Some(block).filter(|block| block.len() == STREAM_INFO);
        }
        rest = &content[length..];
        if head[0] & 0x80 != 0 {
            return info.map(|info| (info, rest));
        }
    }
}
