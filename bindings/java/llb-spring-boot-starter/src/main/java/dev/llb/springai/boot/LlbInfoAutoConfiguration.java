package dev.llb.springai.boot;

import dev.llb.Llb;
import dev.llb.LlbModel;
import dev.llb.ModelInfo;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.actuate.autoconfigure.info.ConditionalOnEnabledInfoContributor;
import org.springframework.boot.actuate.info.InfoContributor;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;

/** The model's description, as {@code llb}: the versions, and the information in its file. */
@AutoConfiguration(after = LlbAutoConfiguration.class)
@ConditionalOnClass({InfoContributor.class, ConditionalOnEnabledInfoContributor.class})
@ConditionalOnBean(LlbModel.class)
@ConditionalOnEnabledInfoContributor("llb")
public class LlbInfoAutoConfiguration {

    @Bean
    @ConditionalOnMissingBean(name = "llbInfoContributor")
    InfoContributor llbInfoContributor(LlbModel model) {
        Map<String, Object> details = new LinkedHashMap<>();
        details.put("version", Llb.version());
        details.put("model", model.name());
        Object path = model.options().values().get("model");
        if (path != null) {
            details.put("model_info", info(Llb.modelInfo(Path.of(path.toString()))));
        }
        return builder -> builder.withDetail("llb", details);
    }

    /** The information without long values: evidence and lists. */
    private static Map<String, Object> info(ModelInfo info) {
        Map<String, Object> kept = new LinkedHashMap<>(info.raw());
        kept.values().removeIf(value -> value == null || value instanceof Iterable<?>);
        kept.remove("type");
        kept.remove("evidence");
        return kept;
    }
}
