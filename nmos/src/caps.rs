//! What a receiver can receive, as IS-04 and BCP-004-01 say it.

use gdmedia_sdp::{Colorimetry, Depth, Ratio, Sampling, Scan, SenderType, Tcs};
use serde_json::{Map, Value, json};

/// Capabilities of a receiver. Without `sets` it is "wide": a controller is told the media types and no more, and hears
/// at the connection whether a stream is accepted. Sets that are too narrow hide senders in controllers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caps {
    /// Such as `video/raw`; any, where there are none.
    pub media_types: Vec<String>,
    /// A stream that fits one of them is accepted.
    pub sets: Vec<ConstraintSet>,
}

/// Values that are allowed: those of a list and of a range. Nothing in it: any.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowed<T> {
    /// One of these; any where the list is empty.
    pub one_of: Vec<T>,
    /// Not below.
    pub minimum: Option<T>,
    /// Not above.
    pub maximum: Option<T>,
}

impl<T> Default for Allowed<T> {
    fn default() -> Self {
        Allowed { one_of: vec![], minimum: None, maximum: None }
    }
}

impl<T> Allowed<T> {
    /// One of `values`.
    pub fn one_of(values: impl Into<Vec<T>>) -> Self {
        Allowed { one_of: values.into(), ..Allowed::default() }
    }
    /// From `minimum` to `maximum`, both included.
    pub fn range(minimum: T, maximum: T) -> Self {
        Allowed { one_of: vec![], minimum: Some(minimum), maximum: Some(maximum) }
    }
}

/// A constraint set of BCP-004-01: a stream fits when all of its constraints hold. What is empty does not constrain and
/// is not written. The names are those of the NMOS parameter register "Capabilities".
///
/// ```
/// use gdmedia_nmos::caps::{Allowed, ConstraintSet};
/// let set = ConstraintSet { frame_width: Allowed::range(16, 4096), ..ConstraintSet::default() };
/// let json = set.json();
/// assert_eq!(json["urn:x-nmos:cap:format:frame_width"]["maximum"], 4096);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConstraintSet {
    /// A name for people.
    pub label: Option<String>,
    /// From -100 to 100; more is liked better.
    pub preference: Option<i8>,
    /// Whether it can be used now; it can, where nothing is said.
    pub enabled: Option<bool>,
    /// Such as `video/raw`.
    pub media_types: Vec<String>,
    /// Frames a second; of audio nothing.
    pub grain_rate: Allowed<Ratio>,
    /// Pixels a row.
    pub frame_width: Allowed<u32>,
    /// Rows of a frame.
    pub frame_height: Allowed<u32>,
    /// Interlaced stands for both orders of the fields.
    pub interlace_modes: Vec<Scan>,
    /// Component structures.
    pub samplings: Vec<Sampling>,
    /// Bits a sample; 16 stands for integers and floating point alike, as the register does not tell them apart.
    pub depths: Vec<Depth>,
    /// Colorimetries.
    pub colorimetries: Vec<Colorimetry>,
    /// Transfer characteristics.
    pub transfers: Vec<Tcs>,
    /// Channels of audio.
    pub channel_count: Allowed<u32>,
    /// Samples of audio a second.
    pub sample_rate: Allowed<Ratio>,
    /// Bits of a sample of audio.
    pub sample_depth: Allowed<u32>,
    /// Packet time of audio in milliseconds.
    pub packet_time: Allowed<f64>,
    /// Longest packet time of audio in milliseconds.
    pub max_packet_time: Allowed<f64>,
    /// Senders of ST 2110-21 that are accepted.
    pub sender_types: Vec<SenderType>,
}

impl Caps {
    /// `caps` of IS-04 without its `version`, which the node adds where there are sets.
    pub fn json(&self) -> Map<String, Value> {
        let mut caps = Map::new();
        if !self.media_types.is_empty() {
            caps.insert("media_types".into(), json!(self.media_types));
        }
        // Sets without a constraint are not allowed (BCP-004-01, "Constraint Sets").
        let sets: Vec<Value> = self.sets.iter().filter(|set| !set.is_free()).map(ConstraintSet::json).collect();
        if !sets.is_empty() {
            caps.insert("constraint_sets".into(), sets.into());
        }
        caps
    }
}

impl ConstraintSet {
    /// Whether it constrains nothing.
    pub fn is_free(&self) -> bool {
        self.constraints().is_empty()
    }

    /// As BCP-004-01 writes it.
    pub fn json(&self) -> Value {
        let mut set = Map::new();
        if let Some(label) = &self.label {
            set.insert("urn:x-nmos:cap:meta:label".into(), json!(label));
        }
        if let Some(preference) = self.preference {
            set.insert("urn:x-nmos:cap:meta:preference".into(), json!(preference.clamp(-100, 100)));
        }
        if let Some(enabled) = self.enabled {
            set.insert("urn:x-nmos:cap:meta:enabled".into(), json!(enabled));
        }
        set.extend(self.constraints());
        set.into()
    }

    fn constraints(&self) -> Map<String, Value> {
        let words = |list: Vec<&str>| constraint(&Allowed::one_of(list), |word| json!(word));
        let ratio = |r: &Ratio| json!({ "numerator": r.num, "denominator": r.den });
        let integer = |n: &u32| json!(n);
        let number = |n: &f64| json!(n);
        let scans = self.interlace_modes.iter().flat_map(|scan| match scan {
            Scan::Progressive => vec!["progressive"],
            Scan::Interlaced => vec!["interlaced_tff", "interlaced_bff"],
            Scan::Psf => vec!["interlaced_psf"],
        });
        let mut depths: Vec<u32> = self.depths.iter().map(|depth| depth.bits()).collect();
        depths.dedup();
        let all = [
            ("format:media_type", words(self.media_types.iter().map(String::as_str).collect())),
            ("format:grain_rate", constraint(&self.grain_rate, ratio)),
            ("format:frame_width", constraint(&self.frame_width, integer)),
            ("format:frame_height", constraint(&self.frame_height, integer)),
            ("format:interlace_mode", words(scans.collect())),
            ("format:color_sampling", words(self.samplings.iter().map(|s| s.as_str()).collect())),
            ("format:component_depth", constraint(&Allowed::one_of(depths), integer)),
            ("format:colorspace", words(self.colorimetries.iter().map(|c| c.as_str()).collect())),
            ("format:transfer_characteristic", words(self.transfers.iter().map(|t| t.as_str()).collect())),
            ("format:channel_count", constraint(&self.channel_count, integer)),
            ("format:sample_rate", constraint(&self.sample_rate, ratio)),
            ("format:sample_depth", constraint(&self.sample_depth, integer)),
            ("transport:packet_time", constraint(&self.packet_time, number)),
            ("transport:max_packet_time", constraint(&self.max_packet_time, number)),
            ("transport:st2110_21_sender_type", words(self.sender_types.iter().map(|t| t.as_str()).collect())),
        ];
        all.into_iter().filter_map(|(name, value)| Some((format!("urn:x-nmos:cap:{name}"), value?))).collect()
    }
}

fn constraint<T>(allowed: &Allowed<T>, json: impl Fn(&T) -> Value) -> Option<Value> {
    let mut map = Map::new();
    if !allowed.one_of.is_empty() {
        map.insert("enum".into(), allowed.one_of.iter().map(&json).collect());
    }
    if let Some(minimum) = &allowed.minimum {
        map.insert("minimum".into(), json(minimum));
    }
    if let Some(maximum) = &allowed.maximum {
        map.insert("maximum".into(), json(maximum));
    }
    (!map.is_empty()).then(|| map.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_with_the_names_of_the_register() {
        let set = ConstraintSet {
            label: Some("HD".into()),
            preference: Some(100),
            enabled: None,
            media_types: vec!["video/raw".into()],
            grain_rate: Allowed::one_of([Ratio { num: 50, den: 1 }, Ratio { num: 60000, den: 1001 }]),
            frame_width: Allowed::one_of([1920]),
            frame_height: Allowed::range(16, 1080),
            interlace_modes: vec![Scan::Progressive, Scan::Interlaced, Scan::Psf],
            samplings: vec![Sampling::YCbCr422],
            depths: vec![Depth::D10, Depth::D16, Depth::F16],
            colorimetries: vec![Colorimetry::Bt709],
            transfers: vec![Tcs::Sdr, Tcs::Hlg],
            sender_types: vec![SenderType::N, SenderType::W],
            ..ConstraintSet::default()
        };
        let expected = json!({
            "urn:x-nmos:cap:meta:label": "HD",
            "urn:x-nmos:cap:meta:preference": 100,
            "urn:x-nmos:cap:format:media_type": { "enum": ["video/raw"] },
            "urn:x-nmos:cap:format:grain_rate":
                { "enum": [{ "numerator": 50, "denominator": 1 }, { "numerator": 60000, "denominator": 1001 }] },
            "urn:x-nmos:cap:format:frame_width": { "enum": [1920] },
            "urn:x-nmos:cap:format:frame_height": { "minimum": 16, "maximum": 1080 },
            "urn:x-nmos:cap:format:interlace_mode":
                { "enum": ["progressive", "interlaced_tff", "interlaced_bff", "interlaced_psf"] },
            "urn:x-nmos:cap:format:color_sampling": { "enum": ["YCbCr-4:2:2"] },
            "urn:x-nmos:cap:format:component_depth": { "enum": [10, 16] },
            "urn:x-nmos:cap:format:colorspace": { "enum": ["BT709"] },
            "urn:x-nmos:cap:format:transfer_characteristic": { "enum": ["SDR", "HLG"] },
            "urn:x-nmos:cap:transport:st2110_21_sender_type": { "enum": ["2110TPN", "2110TPW"] },
        });
        assert_eq!(set.json(), expected);
    }

    #[test]
    fn wide_has_no_sets() {
        let caps = Caps { media_types: vec!["audio/L24".into()], sets: vec![ConstraintSet::default()] };
        assert_eq!(Value::from(caps.json()), json!({ "media_types": ["audio/L24"] }));
        let named = ConstraintSet { label: Some("any".into()), ..ConstraintSet::default() };
        assert!(named.is_free());
    }
}
