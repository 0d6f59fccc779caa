//! What a model takes besides text.

named_enum! {
    /// A kind of media, as `input_modalities` names it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Modality {
        /// Pictures.
        Image = "image",
        /// Sound.
        Audio = "audio",
    }
}
