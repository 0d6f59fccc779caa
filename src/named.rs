//! Enums whose variants have names in JSON. A declaration is the only list of its names.

/// Declares an enum with a name for each variant: `Variant = "name"`.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        $visibility enum $enum {
            $($(#[$variant_meta])* $variant,)+
        }

        #[allow(dead_code, reason = "each enum uses some of these")]
        impl $enum {
            /// All variants, in order. Hidden, because its type changes with a new variant.
            #[doc(hidden)]
            $visibility const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// All variants with their names, in order.
            #[doc(hidden)]
            $visibility const NAMES: &[(&'static str, $enum)] =
                &[$(($name, $enum::$variant)),+];

            /// The variant of this name.
            $visibility fn parse(name: &str) -> Option<$enum> {
                $enum::ALL.into_iter().find(|variant| variant.as_str() == name)
            }

            /// The name of the variant.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D>(deserializer: D) -> Result<$enum, D::Error>
            where
                D: serde::Deserializer<'de>,
            {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                let unknown = || serde::de::Error::custom(format_args!("unknown name {name:?}"));
                $enum::parse(&name).ok_or_else(unknown)
            }
        }
    };
}
