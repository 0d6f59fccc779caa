//! Instructions and vocabularies, and the formats that they show.
