//! Fuzzes a picture file of any format, sent as a data URL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llb::api::MediaLimits;
use llb::media::{DataUrl, Picture};
use llb_fuzz::in_time;

const LIMITS: MediaLimits = MediaLimits { bytes: 1 << 16, pixels: 1 << 22, seconds: 1, parts: 1 };

fuzz_target!(|file: &[u8]| {
    // The sizes in a header are those of the picture.
    let size = in_time(|| Picture::size(file, &LIMITS));
    match in_time(|| Picture::decode(file, &LIMITS, &|| false)) {
        Ok(picture) => {
            assert_eq!(size, Ok((picture.width, picture.height)));
            let pixels = u64::from(picture.width) * u64::from(picture.height);
            assert!((1..=LIMITS.pixels).contains(&pixels));
            assert_eq!(picture.rgb.len() as u64, 3 * pixels);
        }
        Err(message) => assert!(!message.is_empty()),
    }
    // The same bytes as a URL.
    if let Ok(url) = std::str::from_utf8(file)
        && let Ok(url) = DataUrl::parse(url)
        && let Ok(decoded) = in_time(|| url.decode(LIMITS.bytes))
    {
        assert!(decoded.len() <= LIMITS.bytes && decoded.len() <= file.len());
    }
});
