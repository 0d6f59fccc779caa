package dev.llb.springai;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.prompt.ChatOptions;
import org.springframework.ai.model.tool.StructuredOutputChatOptions;

/** Tests how the options of a model and a prompt are combined. */
class LlbChatOptionsTest {

    private static final LlbChatOptions DEFAULTS = LlbChatOptions.builder()
            .temperature(0.1)
            .maxTokens(9)
            .stopSequences(List.of("a"))
            .seed(1)
            .minP(0.2)
            .build();

    @Test
    void thoseOfAPromptWin() {
        LlbChatOptions both = DEFAULTS.overriddenBy(LlbChatOptions.builder()
                .temperature(0.9)
                .stopSequences(List.of("b"))
                .seed(2)
                .outputSchema("{}")
                .build());
        assertThat(both.getTemperature()).isEqualTo(0.9);
        assertThat(both.getMaxTokens()).isEqualTo(9);
        assertThat(both.getStopSequences()).containsExactly("b");
        assertThat(both.getOptions()).isEqualTo(Map.of("seed", 2L, "min_p", 0.2));
        assertThat(both.getOutputSchema()).isEqualTo("{}");
    }

    @Test
    void portableOptionsAreCombined() {
        ChatOptions portable = ChatOptions.builder().topK(3).build();
        assertThat(DEFAULTS.overriddenBy(portable).getTopK()).isEqualTo(3);
        assertThat(DEFAULTS.overriddenBy(portable).getOptions()).isEqualTo(DEFAULTS.getOptions());
        LlbChatOptions combined = DEFAULTS.mutate()
                .combineWith(StructuredOutputChatOptions.builder().outputSchema("{}").topK(3))
                .build();
        assertThat(combined.getTopK()).isEqualTo(3);
        assertThat(combined.getOutputSchema()).isEqualTo("{}");
        assertThat(combined.getTemperature()).isEqualTo(0.1);
    }

    @Test
    void aCopyIsEqualAndIndependent() {
        assertThat(DEFAULTS.mutate().build()).isEqualTo(DEFAULTS).hasSameHashCodeAs(DEFAULTS);
        LlbChatOptions.Builder builder = DEFAULTS.mutate();
        LlbChatOptions.Builder copy = builder.clone().seed(7);
        assertThat(builder.build()).isEqualTo(DEFAULTS);
        assertThat(copy.build()).isNotEqualTo(DEFAULTS);
    }
}
