//! Places of checkpoints and files: paths, and prefixes in buckets.

use std::path::{Path, PathBuf};

/// Whether a place is in a bucket (`s3://bucket/prefix`), and no path.
pub fn is_bucket(place: &Path) -> bool {
    place.to_str().is_some_and(|place| place.starts_with("s3://"))
}

/// Whether a place is written as a URL, with a scheme, and not as a path.
pub fn is_url(place: &Path) -> bool {
    place.to_str().and_then(scheme).is_some()
}

/// The scheme of a URL, and what comes behind it.
fn scheme(place: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let begins = |scheme: &str| scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    place.split_once("://").filter(|(scheme, _)| begins(scheme) && scheme.chars().all(is_part))
}

/// A directory, or a place in a bucket.
///
/// # Errors
/// Another URL: the mistake, and advice.
pub(crate) fn checked(place: &str) -> Result<PathBuf, (String, String)> {
    let advice = match scheme(place) {
        None | Some(("s3", _)) => return Ok(place.into()),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("s3") => format!("write s3://{rest}"),
        Some(_) => "write s3://bucket/prefix, and name the service in AWS_ENDPOINT_URL if it is \
                    not Amazon's; or a directory"
            .to_string(),
    };
    Err((format!("'{place}' is neither a directory nor in a bucket"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_other_kinds_are_refused() {
        for place in ["state", "/a/b", "./http://a", "a/http://b", "://a", "1a://b", "s3://b/p"] {
            assert_eq!(checked(place), Ok(PathBuf::from(place)));
            assert_eq!(is_url(Path::new(place)), place.starts_with("s3"), "{place}");
        }
        assert_eq!(checked("S3://b/p").unwrap_err().1, "write s3://b/p");
        for place in ["http://h/b", "gs://b", "file:///state"] {
            let (message, advice) = checked(place).unwrap_err();
            assert!(message.contains(place) && advice.contains("s3://bucket/prefix"), "{message}");
            assert!(is_url(Path::new(place)) && !is_bucket(Path::new(place)));
        }
    }
}
