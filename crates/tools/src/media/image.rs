//! Decoding and scaling. What is decoded is bounded before anything is allocated for it.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use memchr::memmem;
use parking_lot::Mutex;

use super::{Kind, LARGEST_IMAGE, MOST_PIXELS, MediaError, SIDE, Sendable};

/// The most bytes of decoded pixels.
const MOST_DECODED: u64 = 256 * 1024 * 1024;
/// Images with more decoded bytes than this are worked on one after the other, so that many at once do not add up.
const LARGE: u64 = 32 * 1024 * 1024;
/// The qualities with which a photograph is tried, best first.
const QUALITIES: [u8; 3] = [85, 70, 50];
/// So often an image is made smaller by half to become short enough: one pixel is left long before.
const HALVINGS: u32 = 6;

/// Held by whoever works on a large image.
static LARGE_ONE: Mutex<()> = Mutex::new(());

/// See [`super::fit`].
pub(super) fn fit(kind: Kind, content: Bytes) -> Result<Sendable, MediaError> {
    let broken = |reason: String| MediaError::Broken { mime: kind.mime(), reason };
    // Decoders read what anybody may have written. One that fails must not take anything else with it.
    let fitted = catch_unwind(AssertUnwindSafe(|| try_fit(kind, content)));
    fitted.unwrap_or_else(|_| Err(broken("it cannot be decoded".to_owned())))
}

fn try_fit(kind: Kind, content: Bytes) -> Result<Sendable, MediaError> {
    let mime = kind.mime();
    let broken = |error: ImageError| MediaError::Broken { mime, reason: error.to_string() };
    if kind == Kind::Jpeg && !ends(&content) {
        let reason = "its end is missing".to_owned();
        return Err(MediaError::Broken { mime, reason });
    }
    let format = match kind {
        Kind::Jpeg => ImageFormat::Jpeg,
        Kind::Gif => ImageFormat::Gif,
        Kind::Webp => ImageFormat::WebP,
        Kind::Png | Kind::Pdf => ImageFormat::Png,
    };
    let mut reader = ImageReader::with_format(Cursor::new(&content), format);
    let mut limits = Limits::default();
    limits.max_alloc = Some(MOST_DECODED);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let bytes = decoder.total_bytes();
    if u64::from(width) * u64::from(height) > MOST_PIXELS || bytes > MOST_DECODED {
        return Err(MediaError::Pixels { mime, width, height });
    }
    let _alone = (bytes > LARGE).then(|| LARGE_ONE.lock());
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(broken)?;
    if width.max(height) <= SIDE && content.len() <= LARGEST_IMAGE {
        return Ok(Sendable { kind, content, scaled: None });
    }
    // What tells how it was held is not written again.
    picture.apply_orientation(orientation);
    let was = (picture.width(), picture.height());
    if width.max(height) > SIDE {
        picture = picture.resize(SIDE, SIDE, FilterType::Triangle);
    }
    for _ in 0..HALVINGS {
        let is = (picture.width(), picture.height());
        let scaled = Some([was, is]);
        if kind != Kind::Jpeg {
            let mut png = Cursor::new(Vec::new());
            picture.write_to(&mut png, ImageFormat::Png).map_err(broken)?;
            if png.get_ref().len() <= LARGEST_IMAGE {
                return Ok(Sendable { kind: Kind::Png, content: png.into_inner().into(), scaled });
            }
        }
        // A photograph in a format that is not made for it; or one that is transparent, which stays so.
        if kind == Kind::Jpeg || !picture.color().has_alpha() {
            let pixels = picture.to_rgb8();
            for quality in QUALITIES {
                let mut jpeg = Vec::new();
                JpegEncoder::new_with_quality(&mut jpeg, quality).encode_image(&pixels).map_err(broken)?;
                if jpeg.len() <= LARGEST_IMAGE {
                    return Ok(Sendable { kind: Kind::Jpeg, content: jpeg.into(), scaled });
                }
            }
        }
        let half = |side: u32| (side / 2).max(1);
        picture = picture.resize(half(is.0), half(is.1), FilterType::Triangle);
    }
    let reason = "it cannot be made small enough".to_owned();
    Err(MediaError::Broken { mime, reason })
}

/// Whether a JPEG has its end. Its decoder shows what is missing as grey; providers refuse it. An end in the first half is
/// that of a preview.
fn ends(content: &[u8]) -> bool {
    memmem::rfind(&content[content.len() / 2..], &[0xff, 0xd9]).is_some()
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage, RgbaImage};

    use super::*;

    /// Pixels that no format makes short.
    fn noise(width: u32, height: u32) -> DynamicImage {
        let mut state = 1_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        RgbImage::from_fn(width, height, |_, _| Rgb([next(), next(), next()])).into()
    }

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Bytes {
        let mut out = Cursor::new(Vec::new());
        picture.write_to(&mut out, format).unwrap();
        out.into_inner().into()
    }

    fn read(sendable: &Sendable) -> DynamicImage {
        assert_eq!(Kind::of(&sendable.content), Some(sendable.kind));
        image::load_from_memory(&sendable.content).unwrap()
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        let dot = DynamicImage::new_rgb8(3, 2);
        for (kind, format) in [
            (Kind::Png, ImageFormat::Png),
            (Kind::Jpeg, ImageFormat::Jpeg),
            (Kind::Gif, ImageFormat::Gif),
            (Kind::Webp, ImageFormat::WebP),
        ] {
            let content = encoded(&dot, format);
            assert_eq!(Kind::of(&content), Some(kind));
            let fitted = fit(kind, content.clone()).unwrap();
            assert_eq!(fitted, Sendable { kind, content, scaled: None });
            assert_eq!(fitted.note(), "");
        }
    }

    #[test]
    fn what_is_large_is_scaled_and_keeps_its_shape() {
        let wide = RgbaImage::from_pixel(4_000, 10, image::Rgba([1, 2, 3, 128]));
        let fitted = fit(Kind::Png, encoded(&wide.into(), ImageFormat::Png)).unwrap();
        let picture = read(&fitted);
        assert_eq!((fitted.kind, picture.width(), picture.height()), (Kind::Png, 2_000, 5));
        assert_eq!(picture.to_rgba8().get_pixel(1_000, 2).0, [1, 2, 3, 128]);
        assert_eq!(fitted.note(), ", scaled from 4000 x 10 to 2000 x 5 pixels");
        let tall = DynamicImage::new_rgb8(1, 2_500);
        let fitted = fit(Kind::Jpeg, encoded(&tall, ImageFormat::Jpeg)).unwrap();
        assert_eq!((fitted.kind, read(&fitted).width(), read(&fitted).height()), (Kind::Jpeg, 1, 2_000));
        let fitted = fit(Kind::Gif, encoded(&tall, ImageFormat::Gif)).unwrap();
        assert_eq!((fitted.kind, read(&fitted).height()), (Kind::Png, 2_000));
    }

    #[test]
    #[ignore = "slow: scripts/slow runs it"]
    fn what_is_long_is_made_shorter() {
        let content = encoded(&noise(1_200, 1_200), ImageFormat::Png);
        assert!(content.len() > LARGEST_IMAGE);
        let fitted = fit(Kind::Png, content).unwrap();
        assert_eq!((fitted.kind, read(&fitted).width()), (Kind::Jpeg, 1_200));
        assert!(fitted.content.len() <= LARGEST_IMAGE);
    }

    #[test]
    fn the_way_it_was_held_is_kept() {
        // The smallest EXIF that says "a quarter to the right".
        let exif =
            b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let plain = encoded(&DynamicImage::new_rgb8(2_400, 8), ImageFormat::Jpeg);
        let held = [&plain[..2], exif, &plain[2..]].concat();
        let fitted = fit(Kind::Jpeg, held.into()).unwrap();
        let picture = read(&fitted);
        assert!(picture.width() < picture.height(), "{} x {}", picture.width(), picture.height());
        assert_eq!(fitted.scaled.map(|[was, _]| was), Some((8, 2_400)));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let picture = noise(40, 40);
        for (kind, format) in [
            (Kind::Png, ImageFormat::Png),
            (Kind::Jpeg, ImageFormat::Jpeg),
            (Kind::Gif, ImageFormat::Gif),
            (Kind::Webp, ImageFormat::WebP),
        ] {
            let whole = encoded(&picture, format);
            fit(kind, whole.clone()).unwrap();
            for length in [12, 40, whole.len() / 2, whole.len() * 9 / 10] {
                let error = fit(kind, whole.slice(..length)).unwrap_err();
                assert!(matches!(error, MediaError::Broken { .. }), "{kind:?} {length}: {error}");
            }
        }
        let error = fit(Kind::Png, Bytes::from_static(b"\x89PNG\r\n\x1a\n")).unwrap_err();
        assert!(error.to_string().starts_with("is damaged or not whole (image/png), and cannot be shown: "));
    }

    #[test]
    fn a_small_file_of_very_many_pixels_is_refused_before_it_is_decoded() {
        let small = encoded(&DynamicImage::new_luma8(1, 1), ImageFormat::Png);
        // Width and height stand at the same place in every PNG, with a checksum behind.
        let mut bomb = small.to_vec();
        bomb[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        bomb[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
        let sum = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(
            fit(Kind::Png, bomb.into()),
            Err(MediaError::Pixels { mime: "image/png", width: 60_000, height: 60_000 })
        );
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |sum, byte| {
            (0..8)
                .fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
        })
    }

    #[test]
    fn nothing_that_looks_like_an_image_makes_it_panic() {
        let picture = noise(9, 9);
        for (kind, format) in [
            (Kind::Png, ImageFormat::Png),
            (Kind::Jpeg, ImageFormat::Jpeg),
            (Kind::Gif, ImageFormat::Gif),
            (Kind::Webp, ImageFormat::WebP),
        ] {
            let whole = encoded(&picture, format).to_vec();
            for place in 0..whole.len() {
                for bits in [0xff, 0x01, 0x80] {
                    let mut changed = whole.clone();
                    changed[place] ^= bits;
                    if let Ok(fitted) = fit(kind, changed.into()) {
                        assert!(fitted.content.len() <= LARGEST_IMAGE);
                    }
                }
            }
        }
    }
}
