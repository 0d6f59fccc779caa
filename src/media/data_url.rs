//! URLs that contain their data: `data:image/png;base64,iVBO...` (RFC 2397).

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::too_long;

/// Base64 as clients write it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The parts of a data URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataUrl<'a> {
    /// The type that the URL names, such as `image/png`. Files are recognized by their content.
    pub media_type: &'a str,
    /// The data in base64.
    data: &'a str,
}

impl<'a> DataUrl<'a> {
    /// Splits a URL. The error says what is wrong with it.
    pub fn parse(url: &'a str) -> Result<DataUrl<'a>, &'static str> {
        let scheme = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:"));
        if scheme.is_none() {
            return Err("only data URLs are supported: data:image/png;base64,...");
        }
        let (head, data) = url[5..].split_once(',').ok_or("a data URL without a comma")?;
        let (media_type, encoding) = head.rsplit_once(';').unwrap_or((head, ""));
        if !encoding.trim().eq_ignore_ascii_case("base64") {
            return Err("a data URL whose data is not in base64");
        }
        Ok(DataUrl { media_type, data })
    }

    /// A URL that contains these bytes.
    pub fn write(bytes: &[u8]) -> String {
        let mut url = "data:;base64,".to_owned();
        BASE64.encode_string(bytes, &mut url);
        url
    }

    /// Decodes the data.
    ///
    /// # Errors
    /// A message, if it has more bytes than `most`, or is not base64.
    pub fn decode(&self, most: usize) -> Result<Vec<u8>, String> {
        from_base64(self.data, most)
    }
}

/// Decodes base64. Line breaks and spaces between its characters are left out.
pub(super) fn from_base64(data: &str, most: usize) -> Result<Vec<u8>, String> {
    // Unless it has spaces, `data` is at most this much longer than what it decodes to.
    if data.len() / 4 > most.div_ceil(3) {
        return Err(too_long(most));
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let decoded = if data.bytes().any(|byte| is_space(&byte)) {
        let dense: Vec<u8> = data.bytes().filter(|byte| !is_space(byte)).collect();
        BASE64.decode(dense)
    } else {
        BASE64.decode(data)
    };
    let decoded = decoded.map_err(|_| "not valid base64".to_owned())?;
    if decoded.len() > most { Err(too_long(most)) } else { Ok(decoded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 300;

    #[track_caller]
    fn check(url: &str, expected: Result<(&str, &[u8]), &str>) {
        let parsed = DataUrl::parse(url).map_err(str::to_owned);
        let decoded = parsed.and_then(|url| Ok((url.media_type, url.decode(MAX_BYTES)?)));
        let got = decoded.as_ref().map(|(kind, bytes)| (*kind, bytes.as_slice()));
        assert_eq!(got.map_err(String::as_str), expected);
    }

    #[test]
    fn data_urls() {
        check("data:image/png;base64,AAEC", Ok(("image/png", &[0, 1, 2])));
        check("DATA:;base64,AA==", Ok(("", &[0])));
        check("data:image/png;name=a;base64,AA", Ok(("image/png;name=a", &[0])));
        check("data:image/png;base64,AA\r\nEC", Ok(("image/png", &[0, 1, 2])));
        check("data:image/png;base64,", Ok(("image/png", &[])));
        for bytes in [&[][..], &[0], &[0, 255], &[0, 255, 62]] {
            check(&DataUrl::write(bytes), Ok(("", bytes)));
        }
    }

    #[test]
    fn other_urls_are_errors() {
        let only = "only data URLs are supported: data:image/png;base64,...";
        check("https://example.com/a.png", Err(only));
        check("file:///etc/passwd", Err(only));
        check("", Err(only));
        check("dataé", Err(only));
        check("data:image/png;base64", Err("a data URL without a comma"));
        check("data:image/svg+xml,<svg/>", Err("a data URL whose data is not in base64"));
        check("data:image/png;base64,A*==", Err("not valid base64"));
        check("data:image/png;base64,A", Err("not valid base64"));
        let of = |length| format!("data:;base64,{}", "A".repeat(length));
        check(&of(400), Ok(("", &[0; 300])));
        // 301 bytes, and far more.
        for length in [402, 4000] {
            check(
                &of(length),
                Err("a media file of more than 300 bytes; shorten it, or raise media_limits.bytes"),
            );
        }
    }
}
