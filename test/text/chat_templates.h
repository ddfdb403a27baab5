// Small chat templates in the forms of published ones.
#pragma once

namespace baton {

// Qwen's form: tools and calls as JSON in tags, and results in a message of the user.
inline constexpr char kQwenChat[] =
    "{% if tools %}<|im_start|>system\n<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n"
    "<tool_call></tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n"
    "</tool_response><|im_end|>\n{% elif m.role in ['system', 'user', 'assistant'] %}<|im_start|>{{ m.role }}\n"
    "{% set content = m.content.lstrip('\\n') %}{% if m.reasoning_content %}"
    "{{ '<think>\n' + m.reasoning_content.strip('\\n') + '\n</think>\n\n' }}{% endif %}{{ content }}"
    "{% for c in m.tool_calls or [] %}{% if content or not loop.first %}{{ '\n' }}{% endif %}"
    "{{ '<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"
    "{{ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// Llama 3's form, which refuses several calls in one message.
inline constexpr char kLlamaChat[] =
    "{% if tools %}<|system|>{\"name\": function name, \"parameters\": dictionary of argument name}"
    "{{ tools | tojson }}<|eot|>{% endif %}{% for m in messages %}"
    "{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}{{ raise_exception('single calls only') }}"
    "{% endif %}{% set f = m.tool_calls[0].function %}<|assistant|>"
    "{{ '{\"name\": \"' + f.name + '\", \"parameters\": ' }}{{ f.arguments | tojson }}{{ '}' }}<|eot|>"
    "{% elif m.role == 'tool' %}<|ipython|>{{ m.content }}<|eot|>"
    "{% else %}<|{{ m.role }}|>{{ m.content | trim }}<|eot|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

// Hermes' form, for chats with tools only: it fails without.
inline constexpr char kHermesChat[] =
    "<|im_start|>system\n<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n"
    "<tool_call></tool_call><|im_end|>\n{% for m in messages %}<|im_start|>"
    "{% if m.role == 'tool' %}{{ 'tool\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% elif m.role == 'assistant' and m.tool_calls %}assistant{% for c in m.tool_calls %}"
    "{{ '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}{{ c.function.arguments | tojson }}"
    "{{ '}\n</tool_call>' }}{% endfor %}{% else %}{{ m.role + '\n' + m.content }}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// SmolLM2's form: any role, and no tools.
inline constexpr char kPlainChat[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// Gemma's form: no system message, and roles that alternate.
inline constexpr char kStrictChat[] =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

}  // namespace baton
